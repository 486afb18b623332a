"""The report of one or several searches: what its page shows, and writing it with its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fixnorm.report.curves import Runs, curve_figures, read_runs
from fixnorm.report.drawing import Drawing, png
from fixnorm.report.figures import alpha_figure, lr_figure, points_figure, progress_figure
from fixnorm.report.html import is_page, render
from fixnorm.report.notes import Note, notes
from fixnorm.report.summary import (
    Announced,
    SlotRecord,
    Stage,
    announced,
    answer,
    cost_to_reach,
    stage,
)
from fixnorm.report.tables import (
    SortedTable,
    counted,
    flat,
    slot_table,
    studies_table,
    trial_table,
)
from fixnorm.report.words import slug, title_of
from fixnorm.system import check_files
from fixnorm.system.atomic import write_atomically
from fixnorm.tuning.record import StudyRecord

__all__ = ["check_place", "write_report"]

_PAGE, _FIGURES = "report.html", "figures/"


def write_report(studies: Sequence[StudyRecord], out: Path, *, command: str | None = None) -> Path:
    """Write ``out/report.html`` and ``out/figures/*.png``; return the page's path.

    Several studies are compared first. Searches that are still running, or have nothing to show,
    are reported as they are. ``command`` is what trains with the answer.
    """
    if not studies:
        raise ValueError("a report needs at least one study but got none")
    runs = read_runs(studies)
    parts = [_part(study, place, runs, out) for place, study in enumerate(studies, start=1)]
    pictures = {
        f"{part.anchor}-{drawing.name}" if len(parts) > 1 else drawing.name: drawing
        for part in parts
        for drawing in (*part.figures, *part.curves)
    }
    comparison, title = None, f"{studies[0].name}: {title_of(studies[0])}"
    if len(parts) > 1:
        comparison, title = _compare(parts), f"{len(parts)} searches compared"
        if comparison.figure is not None:
            pictures["comparison"] = comparison.figure
    text = render(
        "searches.html.j2", title=title, parts=parts, comparison=comparison, command=command
    )
    check_place(out)
    (out / _FIGURES).mkdir(parents=True, exist_ok=True)
    with write_atomically(out / _PAGE) as file:  # first: it tells whose the pictures are
        file.write(text.encode("utf-8", errors="replace"))
    for name, drawing in pictures.items():
        with write_atomically(out / _FIGURES / f"{name}.png") as file:
            file.write(png(drawing))
    return out / _PAGE


def check_place(out: Path) -> None:
    """Refuse a folder where a page or pictures of others have our names."""
    check_files(out, (_FIGURES,), sign=_PAGE, ours=is_page)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One study, as ``study.html.j2`` shows it."""

    study: StudyRecord
    anchor: str
    """Its ``id`` in the page and the start of its files' names; no two are equal."""
    best: SlotRecord | None
    stage: Stage
    plan: Announced
    notes: tuple[Note, ...]
    counts: str
    trained: int
    ended: bool
    """Whether any training has."""
    figures: tuple[Drawing, ...]
    curves: tuple[Drawing, ...]
    slots: SortedTable | None
    trials: SortedTable
    settings: tuple[tuple[str, str], ...]


def _part(study: StudyRecord, place: int, runs: Runs, out: Path) -> _Part:
    drawn = (lr_figure(study), alpha_figure(study), points_figure(study), progress_figure([study]))
    return _Part(
        study=study,
        anchor=f"study-{place}-{slug(study.name)}".rstrip("-"),
        best=answer(study),
        stage=stage(study),
        plan=announced(study),
        notes=notes(study),
        counts=counted(study),
        trained=sum(trial.state not in ("free", "running") for trial in study.trials),
        ended=any(trial.state != "running" for trial in study.trials),
        figures=tuple(figure for figure in drawn if figure is not None),
        curves=curve_figures(study, runs),
        slots=slot_table(study),
        trials=trial_table(study, out),
        settings=tuple(flat(study.settings)),
    )


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """Several studies, as ``searches.html.j2`` compares them."""

    best: tuple[StudyRecord, float, float | None] | None
    """The study with the best mean, that mean, and what had been spent when it was reached."""
    mixed: bool
    """Whether their metrics differ."""
    table: SortedTable
    figure: Drawing | None


def _compare(parts: Sequence[_Part]) -> _Comparison:
    studies = [part.study for part in parts]
    known = [
        (part.best.mean, part.study)
        for part in parts
        if part.best is not None and part.best.mean is not None
    ]
    best = None
    if known:
        mean, study = max(known, key=lambda pair: pair[0])
        best = (study, mean, cost_to_reach(study))
    return _Comparison(
        best=best,
        mixed=len({study.metric for study in studies}) > 1,
        table=studies_table(studies, [part.anchor for part in parts]),
        figure=progress_figure(studies, name="comparison"),
    )
