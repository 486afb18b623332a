"""What experiments show, from stored numbers alone."""

from __future__ import annotations

import copy
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fixnorm.commands import run
from fixnorm.evidence.experiment import Exhibit
from fixnorm.evidence.experiments import DRAWN, EXPERIMENTS
from fixnorm.evidence.experiments.table1 import Table1, so_far
from fixnorm.evidence.record import write_exhibit
from fixnorm.report.drawing import svg
from helpers.outcomes import OUTCOMES, record, stored_record


def verdicts(shown: Exhibit) -> list[str]:
    return [claim.verdict for claim in shown.claims]


def test_every_experiment_is_shown_but_the_recordings() -> None:
    assert DRAWN.keys() == EXPERIMENTS.keys() - {"landscapes"}
    assert OUTCOMES.keys() == DRAWN.keys()


def test_fig1_takes_the_best_lr_of_each_and_pairs_seeds() -> None:
    shown = DRAWN["fig1"].of(OUTCOMES["fig1"]).show()

    (table,) = shown.tables
    assert table.rows == (
        ("weight decay", "0.4", "71.00 ± 1.00", "3"),
        ("Algorithm 1", "1.4", "71.00 ± 0.90", "3"),
    )
    assert "+0.00 [−0.25, +0.25]" in table.notes[0]  # differences 0.1, 0, −0.1
    assert verdicts(shown) == ["does not hold", "holds", "holds"]
    assert shown.claims[0].measured.startswith("−1.0 %")  # 9.9 of 10 after two of ten epochs
    assert "−16.2 % after" in shown.claims[0].measured  # 8.3 of 9.9
    assert "1/(4·lr·λ) = 625 steps, the training has 390" in shown.claims[0].measured
    assert shown.claims[1].measured.startswith("−20.0 %")


def test_fig2_tells_scale_risk_and_gain() -> None:
    shown = DRAWN["fig2"].of(OUTCOMES["fig2"]).show()

    (table,) = shown.tables
    assert table.rows[1] == (
        "WN-FC (no cap)",
        "27.10 ± 1.10",
        "20.00 ± 0.00",
        "−0.199 ± 0.001",
        "−0.099 ± 0.001",
    )
    assert table.rows[2][2] == "3.50 ± 0.00"  # g is 4.2, the cap 3.5
    assert verdicts(shown) == ["holds", "holds", "holds", "holds", "holds"]
    assert shown.claims[3].measured.startswith("+2.00 [")  # 2.1, 2.0, 1.9


def test_fig4_goes_algorithm_4s_way_through_the_grid() -> None:
    shown = DRAWN["fig4"].of(OUTCOMES["fig4"]).show()

    (table,) = shown.tables
    assert table.rows[0] == ("best lr", "1", "1", "1")
    assert table.rows[1] == ("its accuracy", "59.00", "60.00", "60.00")  # no short training
    assert verdicts(shown) == ["holds"]  # 0 ± 0.57
    assert "Lost: 0.00 %" in shown.claims[0].measured
    assert "the best of all 60.00 % (lr 1, alpha 1)" in shown.claims[0].measured  # not 16
    assert "standard error of a mean is 0.20 %" in shown.claims[0].measured  # ± 0.2, two seeds


def test_fig4_says_when_lr_depends_on_alpha() -> None:
    outcome = copy.deepcopy(OUTCOMES["fig4"])
    for point in outcome["landscapes"][0]["points"]:
        if point["alpha"] > 0.5 and point["lr"] == 2:
            point["accuracy"] += 8  # 63 there, where at alpha 0.5 lr 1 is best

    (claim,) = DRAWN["fig4"].of(outcome).show().claims

    assert claim.verdict == "does not hold"
    assert "Lost: 3.00 %" in claim.measured


def test_table1_pairs_searches_by_their_fresh_scores() -> None:
    shown = DRAWN["table1"].of(OUTCOMES["table1"]).show()

    (table,) = shown.tables
    assert table.rows[0] == (
        "FixNorm, Algorithm 4",
        "lr 0.8, alpha 1",
        "8",
        "64.00",
        "62.00 ± 1.41",
    )
    assert table.rows[2] == (
        "BO + weight decay",
        "lr 0.8, λ 5.0e-04",
        "25",
        "64.00",
        "61.00 ± 1.41",
    )
    assert "The paper has 78.62 %" in table.notes[0]
    assert "+1.00 [+1.00, +1.00]" in table.notes[1]
    assert shown.claims[0].measured == "+1.00 [+1.00, +1.00] %, at 8.5 against 25 T_max"
    assert verdicts(shown) == ["holds"]


def test_table1_weighs_settings_alike() -> None:
    outcome = copy.deepcopy(OUTCOMES["table1"])
    (first,) = outcome["settings"]
    second = {**copy.deepcopy(first), "setting": "other"}
    for search in second["searches"]:
        if search["method"] == "fixnorm":
            search["scores"] = [score + 2 for score in search["scores"]]  # 3 % ahead
    second["searches"] += [{**search, "plan": "auto"} for search in second["searches"][2:]]
    outcome["settings"].append(second)

    shown = DRAWN["table1"].of(outcome).show()
    over_all, of_the_first, *_ = shown.claims
    assert of_the_first.text.endswith("(toy)")
    assert over_all.text.startswith("Tuned FixNorm")  # the first setting has no plan auto
    assert over_all.text.endswith("(all 2)")
    assert over_all.measured == "+2.00 [−10.71, +14.71] %, at 8.5 against 25 T_max"  # 1 and 3
    first_of_all, *_ = shown.drawings
    assert "+2.00 [−10.71, +14.71]" in svg(first_of_all.panels[0], prefix="a")


def test_progress_counts_cost_and_leaves_out_what_diverged() -> None:
    searches = Table1.of(OUTCOMES["table1"]).settings[0].searches
    assert so_far(searches[0].tried) == [(2.0, 60.0), (3.0, 64.0)]
    assert so_far(searches[2].tried) == [(1.0, 60.0), (1.0, 64.0)]


def test_table2_compares_with_default_and_with_tuned_weight_decay() -> None:
    shown = DRAWN["table2"].of(OUTCOMES["table2"]).show()

    default, tuned, ours = shown.tables[0].rows
    numbers = ("lr 0.4, λ 0.001", "0", "51.00 ± 1.00", "–", "–", "72.04")
    assert default == ("ResNet-8", "default weight decay", *numbers)
    assert tuned[1:6] == (
        "tuned weight decay",
        "lr 0.8, λ 5.0e-04",
        "3",
        "56.00 ± 1.00",
        "+5.00 [+5.00, +5.00]",
    )
    assert ours[1:5] == ("FixNorm, Algorithm 4", "lr 0.8, alpha 1", "3", "55.00 ± 0.00")
    assert ours[5].startswith("+4.00 [")
    assert ours[6].startswith("−1.00 [")
    assert ours[-1] == "73.20"
    assert verdicts(shown) == ["holds", "not contradicted"]  # −1 ± 2.5


def test_table2_with_a_plan_that_has_no_search_for_lr() -> None:
    outcome = copy.deepcopy(OUTCOMES["table2"])
    (first,) = outcome["models"]
    auto = {**first["tuned_fixnorm"], "lr": "auto", "scores": [56.0, 57.0, 58.0]}
    other = {
        **first,
        "setting": "ResNet-14",
        "fixnorm_auto": {**auto, "scores": [58.0, 59.0, 60.0]},
    }
    outcome["models"] = [{**first, "fixnorm_auto": auto}, other]

    shown = DRAWN["table2"].of(outcome).show()
    row = shown.tables[0].rows[3]
    assert row[1:3] == ("FixNorm, plan auto", "lr auto, alpha 1")
    assert row[6] == "+1.00 [+1.00, +1.00]"
    auto = shown.claims[2]
    assert auto.text.endswith("(all 2)")
    assert auto.measured == "+2.00 [−10.71, +14.71] %"  # 1 and 3


@pytest.mark.parametrize("name", ["table3", "table4"])
def test_dense_tables(name: str) -> None:
    shown = DRAWN[name].of(OUTCOMES[name]).show()

    assert shown.tables[0].rows[1] == (
        "toy-small",
        "FixNorm",
        "lr 0.1, alpha 0.5",
        "22.00 ± 1.00",
        "−0.500 ± 0.000",
        "3",
        "79.4",
    )
    assert shown.claims[0].measured == "+1.00 [+1.00, +1.00] %"


def test_dense_tables_beside_weight_decay_with_a_search_of_its_own() -> None:
    outcome = copy.deepcopy(OUTCOMES["table3"])
    tuned = [
        {**run, "searched": True, "lr": 0.3, "score": run["score"] + 3}
        for run in outcome["runs"]
        if run["method"] == "weight-decay"
    ]
    outcome["runs"] += tuned

    shown = DRAWN["table3"].of(outcome).show()
    assert [row[1:4] for row in shown.tables[0].rows] == [
        ("weight decay", "lr 0.1, λ 0.0005", "21.00 ± 1.00"),
        ("FixNorm", "lr 0.1, alpha 0.5", "22.00 ± 1.00"),
        ("weight decay, tuned", "lr 0.3, λ 0.0005", "24.00 ± 1.00"),
    ]
    assert [claim.measured for claim in shown.claims] == [
        "+1.00 [+1.00, +1.00] %",
        "−2.00 [−2.00, −2.00] %",
    ]

    outcome["runs"].pop()
    with pytest.raises(ValueError, match="as many of FixNorm, weight decay, weight decay, tuned"):
        DRAWN["table3"].of(outcome)


def test_peers_pair_each_with_fixnorm() -> None:
    shown = DRAWN["peers"].of(OUTCOMES["peers"]).show()

    rows = shown.tables[0].rows
    assert rows[0][4:] == ("+4.00 [+4.00, +4.00]", "1.00 ×", "4")
    assert rows[-1][4] == "–"
    assert len(shown.claims) == 4


class _Checked(HTMLParser):
    """Fails on a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", list(DRAWN))
def test_files_of_an_experiment(name: str, tmp_path: Path) -> None:
    paths = write_exhibit(stored_record(name), tmp_path)

    assert sorted(paths) == sorted(tmp_path.iterdir())
    assert json.loads((tmp_path / f"{name}.json").read_text()) == json.loads(
        json.dumps(record(name))
    )
    assert all(path.stat().st_size < 1_000_000 for path in paths)  # a page is read in a browser
    pictures = [path for path in paths if path.suffix == ".png"]
    assert pictures
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    page = _Checked()
    page.feed((tmp_path / f"{name}.html").read_text())
    assert not page.open
    assert "a <machine>" in page.text
    assert DRAWN[name].of(OUTCOMES[name]).show().tables[0].rows[0][0] in page.text
    assert (
        f"# {EXPERIMENTS[name].title}\n\n| claim | verdict |"
        in (tmp_path / f"{name}.md").read_text()
    )


def test_stored_numbers_are_drawn_again_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "fig2.json"
    stored.write_text(json.dumps(record("fig2")))
    with pytest.raises(SystemExit) as stopped:
        run(["reproduce", "fig2", "--from", str(stored), "--out", str(tmp_path / "out")])

    assert stopped.value.code == 0
    assert (tmp_path / "out" / "fig2.png").exists()
    assert "holds: Without a cap g grows past it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fig3"], "no experiment 'fig3'; did you mean fig"),
        (["nonsense"], "no experiment 'nonsense'; one of fig1, fig2"),
        (["fig2", "--scale", "huge"], "scale must be small or paper but got 'huge'"),
        (["fig2", "--engine", "slurm"], "engine must be local or ray but got 'slurm'"),
        (["fig2", "--data", "."], ". holds no folder tiny_imagenet_100"),
        (["fig2", "--from", "nowhere.json"], "nowhere.json does not exist: give the JSON"),
        (["landscapes", "--from", "x.json"], "landscapes have no figure of their own"),
        (["fig2"], "--data is needed: a folder that holds tiny_imagenet_100"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FIXNORM_DATA", raising=False)
    with pytest.raises(SystemExit) as stopped:
        run(["reproduce", *arguments])

    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fixnorm: {said}")
    assert not list(tmp_path.iterdir())


def test_records_of_another_kind_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content, said in [
        ("[]", "is not a record of fixnorm reproduce: it: input should be an object"),
        ("nonsense", "it is no whole JSON"),
        (json.dumps(record("fig1")), "is of fig1, not of fig2"),
    ]:
        file = tmp_path / "record.json"
        file.write_text(content)
        with pytest.raises(SystemExit):
            run(["reproduce", "fig2", "--from", str(file), "--out", str(tmp_path / "out")])
        assert said in capsys.readouterr().err
