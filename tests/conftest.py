"""Every test starts from the same seed and runs on one thread, so that two can run side by side."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed_and_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    assert torch.get_default_dtype() == torch.float32, "a test left another default dtype behind"
