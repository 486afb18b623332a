"""Names that libraries other than torch keep to themselves: as ``internals.py``, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["lightning_logs_now", "optuna_id", "ray_on_loopback"]


def optuna_id(trial: Any) -> int:
    """The key of an Optuna trial in its storage, by which a process comes back to it."""
    number: int = trial._trial_id
    return number


def lightning_logs_now(trainer: Any) -> bool:
    """Whether Lightning's trainer logs at this batch."""
    return bool(trainer._logger_connector.should_update_logs)


@contextmanager
def ray_on_loopback() -> Iterator[None]:
    """A Ray that starts here keeps to this machine: its switch for systems without clusters."""
    from ray._private import ray_constants

    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
