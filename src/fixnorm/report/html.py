"""Pages from the templates beside this file: each needs nothing but itself.

Whatever a template is given is text, escaped by jinja2; only a drawing is markup of its own.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fixnorm.report.drawing import Panel, svg

__all__ = ["is_page", "render"]

_GENERATOR = '<meta name="generator" content="fixnorm">'
_BEFORE = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
    ' content="width=device-width, initial-scale=1"><link rel="icon" href="data:,"><title>'
)
"""How pages of version 0.1 began."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no HTML page may hold."""


def render(template: str, **values: object) -> str:
    """The page; a name that the template uses and nobody gave is an error."""
    return _templates().get_template(template).render(values)


def is_page(path: Path) -> bool:
    """Whether the file is a page of ours: by what it says, or as it began before it said so."""
    start = path.read_bytes()[:1000].decode(errors="replace")
    return _GENERATOR in start or start.startswith(_BEFORE)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("fixnorm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"svg": _svg, "t_max": _t_max}
    return made


def _printable(value: object) -> object:
    return type(value)(_CONTROL.sub("", value)) if isinstance(value, str) else value


def _svg(panel: Panel, prefix: str) -> Markup:
    return Markup(svg(panel, prefix=prefix))


def _t_max(text: str) -> Markup:
    """The text, with ``T_max`` set as the paper does."""
    return escape(text).replace("T_max", Markup("T<sub>max</sub>"))
