"""Writing the report of one or several searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fixnorm.report.curve_figures import curve_figures, read_runs
from fixnorm.report.document import is_document
from fixnorm.report.drawing import png
from fixnorm.report.figures import alpha_figure, lr_figure, points_figure, progress_figure
from fixnorm.report.page import StudyPart, anchors_of, page
from fixnorm.system import check_files, write_atomically
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
    parts = []
    for study, anchor in zip(studies, anchors_of(studies), strict=True):
        figures = (lr_figure(study), alpha_figure(study), points_figure(study))
        drawn = tuple(f for f in (*figures, progress_figure([study])) if f is not None)
        parts.append(StudyPart(study, anchor, drawn, curve_figures(study, runs)))
    comparison = progress_figure(studies, name="comparison") if len(studies) > 1 else None

    pictures = {
        f"{part.anchor}-{drawing.name}" if len(parts) > 1 else drawing.name: drawing
        for part in parts
        for drawing in (*part.figures, *part.curves)
    }
    if comparison is not None:
        pictures["comparison"] = comparison
    text = page(parts, comparison, out=out, command=command)
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
    check_files(out, (_FIGURES,), sign=_PAGE, ours=is_document)
