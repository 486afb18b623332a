"""Writing the report of one or several searches: the page and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fixnorm.report import notes, summary, tables, words
from fixnorm.report.branches import branch_figure, rule_figure
from fixnorm.report.comparison import Compared, comparison_figures, is_comparison, sentence
from fixnorm.report.curves import Runs, curve_figures, read_runs
from fixnorm.report.drawing import Drawing, png
from fixnorm.report.figures import alpha_figure, lr_figure, points_figure, progress_figure
from fixnorm.report.html import is_page, render
from fixnorm.report.words import slug
from fixnorm.system import check_files, write_atomically
from fixnorm.tuning.trial import StudyRecord

__all__ = ["check_place", "write_report"]

_PAGE, _FIGURES = "report.html", "figures/"


def write_report(studies: Sequence[StudyRecord], out: Path, *, command: str | None = None) -> Path:
    """Write ``out/report.html`` and ``out/figures/*.png``; return the page's path.

    Several studies are compared first. Searches that are still running, or have nothing to show,
    are reported as they are. ``command`` is what trains with the answer.
    """
    if all(is_comparison(study) for study in studies):
        raise ValueError("a report needs at least one study but got none")
    runs = read_runs(studies)
    searches = [study for study in studies if not is_comparison(study)]
    parts = [_part(study, place, runs) for place, study in enumerate(searches, start=1)]
    anew = [
        _Anew(made, comparison_figures(made, runs))
        for study in studies
        if is_comparison(study) and (made := Compared(study)).values[0]
    ]
    pictures = {
        f"{part.anchor}-{drawing.name}" if len(parts) > 1 else drawing.name: drawing
        for part in parts
        for drawing in (*part.figures, *part.curves)
    }
    pictures |= {
        f"{part.anchor}-{drawing.name}" if len(anew) > 1 else drawing.name: drawing
        for part in anew
        for drawing in part.figures
    }
    comparison = progress_figure(searches, name="comparison") if len(parts) > 1 else None
    if comparison is not None:
        pictures[comparison.name] = comparison
    asked = {"notes": notes, "summary": summary, "tables": tables, "words": words}
    text = render(
        "searches.html.j2",
        parts=parts,
        anew=anew,
        comparison=comparison,
        out=out,
        command=command,
        **asked,
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


@dataclass(frozen=True)
class _Part:
    """A study with its drawings."""

    study: StudyRecord
    anchor: str
    """Its ``id`` in the page and the start of its files' names; no two are equal."""
    figures: tuple[Drawing, ...]
    curves: tuple[Drawing, ...]


@dataclass(frozen=True)
class _Anew:
    """A comparison with its drawings."""

    compared: Compared
    figures: tuple[Drawing, ...]

    @property
    def anchor(self) -> str:
        """Its ``id`` in the page."""
        return f"anew-{slug(self.compared.study.name)}"

    @property
    def sentence(self) -> str:
        """What came out."""
        return sentence(self.compared)


def _part(study: StudyRecord, place: int, runs: Runs) -> _Part:
    drawn = (
        branch_figure(study, runs),
        rule_figure(study, runs),
        lr_figure(study),
        alpha_figure(study),
        points_figure(study),
        progress_figure([study]),
    )
    return _Part(
        study,
        f"study-{place}-{slug(study.name)}".rstrip("-"),
        tuple(figure for figure in drawn if figure is not None),
        curve_figures(study, runs),
    )
