"""What all pages have in common: they need nothing but themselves, and show figures in cards."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fixnorm.report.drawing import Drawing, svg
from fixnorm.report.markup import Markup, join, tag, with_t_max

__all__ = ["document", "figure_card", "is_document"]

_GENERATOR = '<meta name="generator" content="fixnorm">'
_BEFORE = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
    ' content="width=device-width, initial-scale=1"><link rel="icon" href="data:,"><title>'
)
"""How pages of version 0.1 began."""


def document(title: str, body: Markup, *, script: str | None = None) -> str:
    """The whole page; ``script`` is a file of this package."""
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="generator", content="fixnorm"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Without it a browser asks the disk for a favicon.
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", _inline("page.css")),
    )
    scripts = None if script is None else tag("script", _inline(script))
    page = tag("html", tag("head", head), tag("body", tag("main", body), scripts), lang="en")
    return f"<!doctype html>\n{page}\n"


def is_document(path: Path) -> bool:
    """Whether the file is a page of ours: by what it says, or as it began before it said so."""
    start = path.read_bytes()[:1000].decode(errors="replace")
    return _GENERATOR in start or start.startswith(_BEFORE)


def figure_card(drawing: Drawing, anchor: str, *, class_: str | None = None) -> Markup:
    """All panels of a drawing, which stand side by side where there is room."""
    name = f"{anchor}-{drawing.name}"
    images = [
        tag(
            "div",
            Markup(svg(panel, prefix=f"{name}-{place}")),
            role="img",
            aria_label=panel.title,
            class_="panel",
        )
        for place, panel in enumerate(drawing.panels)
    ]
    inner = "curves" if class_ == "curves" else "pair"
    wide = len(images) > 1 or inner == "curves"
    return tag(
        "figure",
        tag("div", *images, class_=inner),
        tag("figcaption", with_t_max(drawing.caption)),
        id=name,
        class_="card wide" if wide else "card",
    )


def _inline(name: str) -> Markup:
    return Markup(resources.files("fixnorm.report").joinpath(name).read_text(encoding="utf-8"))
