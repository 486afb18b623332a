"""Packages that import their public names when these are first asked for (PEP 562).

torch alone takes seconds to load. Help, a usage error, the list of recipes and the report of a
search need none of it: they import the package and some of its files, and nothing else wakes up.
To a reader, a type checker and ``dir`` such a package is as any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["lazy"]


def lazy(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its name.
        modules: the names that each of its modules gives to it, with spaces between.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in places:
            value = getattr(import_module(f"{package}.{places[name]}"), name)
            setattr(sys.modules[package], name, value)  # from now on it is found without this
            return value
        public = name.isidentifier() and not name.startswith("_")
        if public and find_spec(f"{package}.{name}") is not None:  # one of its modules
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, names
