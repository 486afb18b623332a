"""A drawing is a row of panels; a panel knows its size and how to draw itself into axes.

The page shows each panel by itself, so that they can stand side by side or one under another; a PNG
holds all panels of a drawing.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fixnorm.report.style import GRID, INK, MUTED, PAPER

__all__ = ["Drawing", "Panel", "png", "svg"]

_FONTS = ("Helvetica Neue", "Helvetica", "Arial", "Liberation Sans")
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
_PNG_DPI = 200
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class Panel:
    """One pair of axes, with fixed room around it for words: neighbours are alike."""

    title: str
    """For people, and for those who cannot see the panel."""
    draw: Callable[[Axes], None]
    width: float = 320.0
    """In points, like all lengths here."""
    height: float = 215.0
    left: float = 40.0
    right: float = 8.0
    top: float = 22.0
    bottom: float = 30.0

    def axes(self, figure: Figure, x: float = 0.0, y: float = 0.0) -> Axes:
        """Draw it into a figure, its lower left corner at this place."""
        width, height = (72 * float(inches) for inches in figure.get_size_inches())
        box = (
            (x + self.left) / width,
            (y + self.bottom) / height,
            (self.width - self.left - self.right) / width,
            (self.height - self.top - self.bottom) / height,
        )
        axes = figure.add_axes(box)
        self.draw(axes)
        return axes


@dataclass(frozen=True)
class Drawing:
    """Panels that belong together."""

    name: str
    """Of its file, and its ``id`` in the page."""
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 2


def svg(panel: Panel, *, prefix: str) -> str:
    """An ``<svg>`` element to put into a page; ``prefix`` keeps its ids apart from others."""
    with _settings():
        figure = Figure(figsize=(panel.width / 72, panel.height / 72))
        FigureCanvasSVG(figure)
        figure.patch.set_visible(False)
        panel.axes(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    return _for_page(text.getvalue(), prefix)


def png(drawing: Drawing) -> bytes:
    """The whole drawing as a picture."""
    columns = min(drawing.columns, len(drawing.panels))
    width = max(panel.width for panel in drawing.panels)
    starts = range(0, len(drawing.panels), columns)
    rows = [drawing.panels[start : start + columns] for start in starts]
    heights = [max(panel.height for panel in row) for row in rows]
    with _settings():
        figure = Figure(figsize=(columns * width / 72, sum(heights) / 72), facecolor="white")
        FigureCanvasAgg(figure)
        top = sum(heights)
        for row, height in zip(rows, heights, strict=True):
            for column, panel in enumerate(row):
                panel.axes(figure, column * width, top - panel.height)
            top -= height
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return content.getvalue()


@contextmanager
def _settings() -> Iterator[None]:
    """What matplotlib takes from its global settings only, for the time of one drawing."""
    with (
        matplotlib.rc_context(
            {
                "font.family": _fonts(),
                "svg.fonttype": "none",  # text stays text: small, searchable, in the page's font
                "svg.hashsalt": "fixnorm",  # the same records give the same page
                "axes.unicode_minus": True,
            }
        ),
        warnings.catch_warnings(),
    ):
        # A name in a script that the fonts here do not have; the page's fonts may.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


@cache
def _fonts() -> list[str]:
    there = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _FONTS if name in there] + ["DejaVu Sans"]


def _for_page(document: str, prefix: str) -> str:
    """The element alone: scalable, with ids of its own and the page's colours, and shorter."""
    element = document[document.index("<svg") :]
    for useless in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"<!--.*?-->"):
        element = re.sub(useless, "", element, flags=re.DOTALL)
    head, body = element.split(">", 1)
    viewbox = re.search(r'viewBox="[^"]*"', head)
    assert viewbox is not None

    def of_page(found: re.Match[str]) -> str:
        tag = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{prefix}-", found[0])
        if "base64" not in tag:
            tag = re.sub(r"(?<=\d\.\d\d)\d+", "", tag)
        for colour, variable in _VARIABLES.items():
            tag = tag.replace(colour, f"var({variable})")
        return tag

    # Inside tags alone: what stands between them is text, a name or a number for people.
    body = re.sub(r"<[^>]*>", of_page, body)
    body = re.sub(r"\n\s*", "\n", body)
    return f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {viewbox[0]}>{body.strip()}'
