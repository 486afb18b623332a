"""Scripts of ``benchmarks/`` as modules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.pages import ROOT


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """By name, imported as where a script is run from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module
