"""Figures: what is in them, and that nothing in a record or a file can break them."""

from __future__ import annotations

import dataclasses
import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fixnorm.report.branches import branch_figure, rule_figure
from fixnorm.report.curves import PAGE_POINTS, curve_figures, read_curves, read_runs, thinned
from fixnorm.report.drawing import Drawing, Panel, png, svg
from fixnorm.report.figures import alpha_figure, lr_figure, points_figure, progress_figure
from fixnorm.report.style import apart
from fixnorm.tuning.trial import Result, StudyRecord
from helpers.records import auto_study, baseline_study, paper_study, study, trial

HEADER = "epoch,step,train_loss,val_accuracy\n"


def words(drawing: Drawing | None) -> str:
    """All text of a drawing, as a reader of its elements sees it."""
    assert drawing is not None
    found: list[str] = []
    for place, panel in enumerate(drawing.panels):
        tree = ElementTree.fromstring(svg(panel, prefix=f"p{place}"))
        found += [" ".join(t.itertext()).strip() for t in tree.iter() if t.tag.endswith("text")]
    return "\n".join(found)


def picture(drawing: Drawing | None) -> np.ndarray:
    assert drawing is not None
    return np.asarray(Image.open(io.BytesIO(png(drawing))).convert("RGB")).astype(int)


def test_a_picture_has_room_for_its_highest_panel() -> None:
    low, high = (Panel("", lambda ax: None, height=height) for height in (72.0, 144.0))
    drawing = Drawing("uneven", "", "", (low, high, low))
    assert picture(drawing).shape[0] == (144 + 72) / 72 * 200  # 200 dots an inch


def all_drawings(record: StudyRecord) -> list[Drawing]:
    single = (lr_figure, alpha_figure, points_figure)
    runs = read_runs([record])
    drawn = [figure(record) for figure in single] + [progress_figure([record])]
    drawn += [branch_figure(record, runs), rule_figure(record, runs)]
    return [d for d in drawn if d is not None] + [*curve_figures(record, runs)]


# -- over lr and alpha -------------------------------------------------------------------------


def test_a_panel_for_each_lr_round_with_values_and_states(tmp_path: Path) -> None:
    record = paper_study(tmp_path)
    drawing = lr_figure(record)
    assert drawing is not None
    assert [panel.title for panel in drawing.panels] == [
        "lr round 1: 0.2 T_max, alpha 0.5",
        "lr round 2: T_max, alpha 0.5",
    ]
    said = words(drawing).splitlines()
    assert "diverged" in said
    assert "failed" in said
    for t in record.trials:
        if t.round.startswith("lr") and t.accuracy is not None:
            assert f"{t.accuracy:.2f}" in said


def test_alphas_with_the_one_that_the_lr_round_trained_and_the_free_ones_named(
    tmp_path: Path,
) -> None:
    said = words(alpha_figure(paper_study(tmp_path))).splitlines()
    assert {"0.5", "1", "2", "4", "8", "16"} <= set(said)
    assert said.count("same training as alpha=16") == 1


def test_a_free_point_is_hollow(tmp_path: Path) -> None:
    def hollow(record: StudyRecord) -> int:
        drawing = alpha_figure(record)
        assert drawing is not None
        shapes = svg(drawing.panels[0], prefix="x")
        return len(re.findall(r"<use [^>]*fill: var\(--paper\)", shapes))

    record = paper_study(tmp_path)
    assert hollow(record) == 3
    as_trained = Result(accuracy=50.0)
    trained = tuple(
        dataclasses.replace(t, result=as_trained) if t.state == "free" else t for t in record.trials
    )
    assert hollow(dataclasses.replace(record, trials=trained)) == 0


def test_the_winner_is_ringed_once_a_round(tmp_path: Path) -> None:
    for record in (paper_study(tmp_path / "a"), paper_study(tmp_path / "b", seeds=3)):
        for drawing in (lr_figure(record), alpha_figure(record)):
            assert drawing is not None
            for panel in drawing.panels:
                rings = re.findall(
                    r"<use [^>]*fill-opacity: 0[^>]*stroke: #d55e00", svg(panel, prefix="x")
                )
                assert len(rings) == 1


def test_error_bars_only_where_there_are_seeds(tmp_path: Path) -> None:
    one, three = lr_figure(paper_study(tmp_path / "a")), lr_figure(
        paper_study(tmp_path / "b", seeds=3, lost=False)
    )  # fmt: skip
    assert one is not None
    assert three is not None
    assert "LineCollection" not in svg(one.panels[0], prefix="x")
    assert svg(three.panels[0], prefix="x").count("LineCollection") == 5
    assert "Means of 3 seeds" in three.caption


def test_a_baseline_has_points_and_no_rounds(tmp_path: Path) -> None:
    record = baseline_study(tmp_path)
    assert lr_figure(record) is None
    assert alpha_figure(record) is None
    drawing = points_figure(record)
    assert drawing is not None
    assert drawing.panels[0].title.startswith("25 points, the best ")
    # The axes show the space that was searched.
    assert {"0.2", "2", "1e-5", "5e-4"} <= set(words(drawing).splitlines())


def test_progress_names_every_study(tmp_path: Path) -> None:
    one, two = paper_study(tmp_path / "a"), baseline_study(tmp_path / "b")
    said = words(progress_figure([one, two])).splitlines()
    assert "FixNorm, paper's plan" in said
    assert "weight decay, Bayesian (GP)" in said
    # Two of a kind are told apart by their names.
    other = dataclasses.replace(one, name="another")
    said = words(progress_figure([one, other])).splitlines()
    assert "cifar10-small" in said
    assert "another" in said


# -- curves ------------------------------------------------------------------------------------


def test_five_panels_of_curves_for_each_round(tmp_path: Path) -> None:
    record = paper_study(tmp_path)
    drawings = curve_figures(record, read_runs([record]))
    assert [d.name for d in drawings] == [
        "curves-lr-round-1", "curves-lr-round-2", "curves-alpha-round",
    ]  # fmt: skip
    assert all(len(d.panels) == 5 for d in drawings)
    assert {"lr 0.8", "lr 1.4", "lr 2", "lr 2.6"} <= set(words(drawings[0]).splitlines())
    assert {"alpha 1", "alpha 16"} <= set(words(drawings[2]).splitlines())


def test_a_diverged_training_does_not_take_the_scale(tmp_path: Path) -> None:
    record = paper_study(tmp_path)
    loss = curve_figures(record, read_runs([record]))[0].panels[0]
    tree = ElementTree.fromstring(svg(loss, prefix="x"))
    said = [" ".join(t.itertext()).strip() for t in tree.iter() if t.tag.endswith("text")]
    ticks = [float(text) for text in said if re.fullmatch(r"[\d.]+", text)]
    assert max(ticks) < 5  # the diverged loss is above 100


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, {}),
        ("", {}),
        ("epo", {}),
        (HEADER, {}),
        (HEADER + "1,10,2.5,30\n2,20,1.5,4", {"train_loss": ((1, 2.5),)}),  # 4 may become 45
        (HEADER + "1,10,2.5\n2,20,1.5,40\n", {"train_loss": ((1, 2.5), (2, 1.5))}),
        (HEADER + "1,10,nan,\n2,20,inf,40\n", {"val_accuracy": ((2, 40),)}),
        (HEADER + "x,10,1,2\n1,10,3,4,5,6\n", {"train_loss": ((1, 3),), "val_accuracy": ((1, 4),)}),
        ("\0\0\xff,\n\0", {}),
    ],
)
def test_half_written_metrics(
    tmp_path: Path, content: str | None, expected: dict[str, object]
) -> None:
    if content is not None:
        (tmp_path / "metrics.csv").write_bytes(content.encode("latin-1"))
    curves = read_curves(tmp_path)
    for name in ("train_loss", "val_accuracy"):
        if name in expected or not expected:
            assert curves.get(name, ()) == expected.get(name, ())


def test_thinned() -> None:
    curve = [(float(k), float(k)) for k in range(101)]
    assert thinned(curve, 5) == ((0, 0), (25, 25), (50, 50), (75, 75), (100, 100))
    assert thinned(curve, 0) == ((0, 0), (100, 100))
    assert thinned(curve[:3], 5) == tuple(curve[:3])


def test_curves_of_many_long_runs_are_thinned_out(tmp_path: Path) -> None:
    record = baseline_study(tmp_path, points=120, epochs=150)
    runs = read_runs([record])
    points = sum(len(curve) for curves in runs.values() for curve in curves.values())
    assert 0.5 * PAGE_POINTS < points <= PAGE_POINTS


# -- nothing breaks them -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        study(),
        study(trial("a", state="running")),
        study(trial("a", state="failed", reason="no")),
        study(trial("a", state="diverged"), trial("b", index=1, lr=2.0, state="running")),
        study(trial("a", accuracy=50.0)),
        study(trial("a", accuracy=50.0), trial("b", index=1, lr=2.0, accuracy=50.0)),
        study(trial("a", round="alpha round", accuracy=0.0, state="free", source="gone")),
        study(trial("p", round="points", alpha=None, weight_decay=1e-4, state="diverged")),
        study(trial("p", round="points", alpha=None, weight_decay=1e-4, accuracy=1.0)),
        study(*(trial(f"t{k}", index=k, lr=0.1 * (k + 1), accuracy=k) for k in range(30))),
        study(trial("a", accuracy=0.5), metric="$\\frac{ <b> 漢 \x07", name="$x_{"),
    ],
)
def test_any_record_can_be_drawn(record: StudyRecord) -> None:
    for drawing in all_drawings(record):
        assert len(np.unique(picture(drawing))) > 5
        for panel in drawing.panels:
            svg(panel, prefix="x")


def test_names_are_text_not_formulas_and_are_escaped() -> None:
    nasty = ['<b>&"', "$x_{", "$a$"]
    records = [study(trial("a", accuracy=50.0), name=name) for name in nasty]
    said = words(progress_figure(records))
    for name in nasty:
        assert name in said


def test_the_numbers_in_the_text_are_left_as_they_are() -> None:
    point = trial("p", round="points", alpha=None, weight_decay=1.2e-4, lr=0.7354, accuracy=61.239)
    said = words(points_figure(study(point))).splitlines()
    assert "1 point, the best 61.24 (lr 0.735, weight decay 1.2e-4)" in said
    assert said.count("1e-4") == 1


def test_the_same_record_gives_the_same_drawing_with_ids_of_its_own(tmp_path: Path) -> None:
    record = paper_study(tmp_path)
    drawing = alpha_figure(record)
    assert drawing is not None
    panel = drawing.panels[0]
    first, again = svg(panel, prefix="one"), svg(panel, prefix="one")
    assert first == again
    ids = [set(re.findall(r'\bid="([^"]*)"', svg(panel, prefix=p))) for p in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]
    for used in re.findall(r'(?:href="|url\()#([^")]*)', first):
        assert used in ids[0]


def test_colours_of_the_page_are_variables(tmp_path: Path) -> None:
    drawing = lr_figure(paper_study(tmp_path))
    assert drawing is not None
    shapes = svg(drawing.panels[0], prefix="x")
    assert "var(--ink)" in shapes
    assert "#1f2328" not in shapes


def test_pngs_hold_all_panels(tmp_path: Path) -> None:
    record = paper_study(tmp_path)
    for drawing in all_drawings(record):
        pixels = picture(drawing)
        columns = min(drawing.columns, len(drawing.panels))
        for place in range(len(drawing.panels)):
            rows = -(-len(drawing.panels) // columns)
            height, width = pixels.shape[0] // rows, pixels.shape[1] // columns
            y, x = place // columns * height, place % columns * width
            part = pixels[y : y + height, x : x + width]
            assert (part.sum(axis=2) < 600).mean() > 0.005, (drawing.name, place)


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    import sys

    import matplotlib as mpl

    before = dict(mpl.rcParams)
    picture(lr_figure(paper_study(tmp_path)))
    assert dict(mpl.rcParams) == before
    assert (
        "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    )


def test_labels_are_pushed_apart() -> None:
    assert apart([0.2, 0.8], 0.1) == pytest.approx([0.2, 0.8])
    assert apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert apart([0.5, 0.52, 0.54], 0.1) == pytest.approx([0.42, 0.52, 0.62])
    assert apart([1.0, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert apart([0.0, 0.0], 0.1) == pytest.approx([0.0, 0.1])


# -- branches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2])
def test_every_alpha_leaves_the_trunk_where_it_meets_its_cap(tmp_path: Path, seeds: int) -> None:
    record = auto_study(tmp_path, seeds=seeds)
    runs = read_runs([record])
    drawing = branch_figure(record, runs)
    assert drawing is not None
    assert ("first seed" in drawing.caption) == (seeds > 1)
    said = words(drawing).splitlines()
    # 8 is free, so it has no line; the others cost what was left when they left.
    for label in ("alpha 16: 1 T_max", "alpha 4: 0.35 T_max", "alpha 2: 0.7 T_max"):
        assert said.count(label) == 2  # in both panels
    assert not any(label.startswith("alpha 8") for label in said)
    for panel, column in zip(drawing.panels, ("head_scale", "val_accuracy"), strict=True):
        ax = panel.axes(Figure(figsize=(5, 3)))
        lines = [line.get_xydata() for line in ax.lines if len(line.get_xdata()) > 2]
        trunk = {tuple(point) for point in lines[0]}
        # 4 leaves after epoch 13, 2 after 6, 1 after 2: there they are on the trunk, and no longer.
        assert [line[0][0] for line in lines] == [1, 13, 6, 2], column
        for line in lines[1:]:
            assert tuple(line[0]) in trunk
            assert tuple(line[-1]) not in trunk


def test_a_branch_that_diverged_is_drawn_from_where_it_left(tmp_path: Path) -> None:
    """Alpha 2 left after epoch 6 of 20, and came to epoch 10."""
    made = auto_study(tmp_path)
    at = next(place for place, t in enumerate(made.trials) if t.alpha == 2.0)
    lost = dataclasses.replace(made.trials[at], result=Result(state="diverged", share=0.2))
    assert lost.folder is not None
    metrics = lost.folder / "metrics.csv"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:11]))
    trials = (*made.trials[:at], lost, *made.trials[at + 1 :])
    record = dataclasses.replace(made, trials=trials)
    drawing = branch_figure(record, read_runs([record]))
    assert drawing is not None
    assert "alpha 2 ×: 0.2 T_max" in words(drawing)
    lines = drawing.panels[1].axes(Figure(figsize=(5, 3))).lines
    (own,) = [line.get_xdata() for line in lines if line.get_xdata()[-1] == 10]
    assert list(own) == [6, 7, 8, 9, 10]


def test_the_lr_of_the_answer(tmp_path: Path) -> None:
    record = auto_study(tmp_path)
    drawing = rule_figure(record, read_runs([record]))
    assert drawing is not None
    assert [panel.title for panel in drawing.panels] == ["lr", "angle of a step (°)"]
    answers = read_curves(tmp_path / "alpha-2-seed0")
    highest = max(lr for _, lr in answers["lr"])
    turned = max(math.degrees(angle) for _, angle in answers["angular_update"])
    assert {f"{highest:.3g}", f"{turned:.3g}"} <= set(words(drawing).splitlines())


def test_an_answer_that_is_free_shows_the_training_it_stands_for(tmp_path: Path) -> None:
    """Of equals the smaller alpha is the answer; it has no folder of its own."""
    made = auto_study(tmp_path)
    record = dataclasses.replace(made, trials=made.trials[:2])
    best = record.answer()
    assert best is not None
    assert (best.alpha, best.folder) == (8.0, None)
    assert rule_figure(record, read_runs([record])) is not None


def test_other_searches_have_no_branches(tmp_path: Path) -> None:
    for record in (paper_study(tmp_path / "paper"), baseline_study(tmp_path / "bo")):
        runs = read_runs([record])
        assert branch_figure(record, runs) is None
        assert rule_figure(record, runs) is None


@pytest.mark.parametrize("text", ["", "epoch\n", HEADER, HEADER + "1,11,nan,nan\n"])
def test_branches_of_runs_in_any_state(tmp_path: Path, text: str) -> None:
    record = auto_study(tmp_path)
    for key in ("trunk-5-seed0", "alpha-2-seed0"):
        (tmp_path / key / "metrics.csv").write_text(text)
    running = dataclasses.replace(record.trials[-1], result=None)
    record = dataclasses.replace(record, trials=(*record.trials[:-1], running), over=False)
    for drawing in all_drawings(record):
        words(drawing)
