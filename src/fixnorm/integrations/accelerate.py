"""Accelerate: ``fixnorm.attach`` takes the prepared optimizer; here its figures reach the trackers.

``accelerator.prepare`` wraps an optimizer in one that takes no hooks; ``attach`` looks through it,
so it may come before ``prepare`` or after. A state that ``accelerator.save_state`` writes has the
target norms, as they are in the optimizer's groups.

The steps of ``lr="auto"`` are those that the optimizer makes: of ``n`` batches on this process,
``ceil(n / gradient_accumulation_steps)`` an epoch. A call of ``step`` that Accelerate passes over,
while gradients accumulate or after an overflow, is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fixnorm.hook import Handle
from fixnorm.integrations import scalars

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["log"]


def log(accelerator: Accelerator, handle: Handle, *, step: int) -> None:
    """Send the last step's figures to the trackers of ``Accelerator(log_with=…)``.

    Every process must call it where the layers are sharded; the main one alone writes.
    """
    accelerator.log(scalars(handle.figures()), step=step)
