"""A watcher of the hook, and no state of Accelerate that outlives its test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from helpers import frameworks


@pytest.fixture
def seen() -> Iterator[frameworks.Rescales]:
    with frameworks.rescales() as found:
        yield found


@pytest.fixture(autouse=True)
def _no_state_of_accelerate() -> Iterator[None]:
    """It is one for the whole process: a test in bf16 would make the next one so."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
