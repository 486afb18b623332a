"""HTML in which whatever is not markup is escaped."""

from __future__ import annotations

import html
import re

__all__ = ["T_MAX", "Markup", "join", "tag", "with_t_max"]

_VOID = frozenset({"meta", "link", "br"})
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no HTML page may hold."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | None) -> Markup:
    """An element; children that are plain text are escaped, none is left out.

    ``class_`` is the attribute ``class``, ``data_sort`` is ``data-sort``; an attribute that is none
    is left out.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_CONTROL.sub("", value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{join(*children)}</{name}>")


def join(*children: str | None) -> Markup:
    """Children one after another, escaped where they are plain text."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(_CONTROL.sub("", child))
            for child in children
            if child is not None
        )
    )


T_MAX = Markup("T<sub>max</sub>")


def with_t_max(text: str) -> Markup:
    """The text, with ``T_max`` set as the paper does."""
    return Markup(join(text).replace("T_max", T_MAX))
