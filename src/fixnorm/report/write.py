"""Writing the report of one or several searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fixnorm.report.curve_figures import curve_figures, read_runs
from fixnorm.report.drawing import Drawing, png
from fixnorm.report.figures import alpha_figure, lr_figure, points_figure, progress_figure
from fixnorm.report.page import StudyPart, anchors_of, page
from fixnorm.training.checkpoint import write_atomically
from fixnorm.tuning.record import StudyRecord

__all__ = ["write_report"]


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

    pictures = out / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    for part in parts:
        for drawing in (*part.figures, *part.curves):
            named = f"{part.anchor}-{drawing.name}" if len(parts) > 1 else drawing.name
            _write_png(pictures / f"{named}.png", drawing)
    if comparison is not None:
        _write_png(pictures / "comparison.png", comparison)
    path = out / "report.html"
    text = page(parts, comparison, out=out, command=command)
    with write_atomically(path) as file:
        file.write(text.encode("utf-8", errors="replace"))
    return path


def _write_png(path: Path, drawing: Drawing) -> None:
    with write_atomically(path) as file:
        file.write(png(drawing))
