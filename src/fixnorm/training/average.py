"""The moving average of a run at its end: measured and, by option, back on the sphere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from fixnorm.averages import measure_average, project_average_
from fixnorm.batch_statistics import update_statistics_
from fixnorm.training.distributed import World
from fixnorm.training.setup import Trainee

__all__ = ["settle_average"]


def settle_average(
    trainee: Trainee,
    batches: Iterable[Any] | None,
    run: Callable[[nn.Module, Any], Any],
    world: World,
) -> dict[str, float]:
    """The average's norm in units of the target, the least of all groups, as it was found.

    Args:
        trainee: what was trained; empty-handed where it has no average or no fixed group.
        batches: this process's, to take batch statistics of once the average is back on the
            sphere; none to leave it where it is.
        run: the model on a batch.
        world: all processes; each gets the statistics of all of them.
    """
    if trainee.ema is None or trainee.handle is None:
        return {}
    average = trainee.ema.module
    ratio = min(found.ratio for found in measure_average(average, trainee.optimizer))
    if not math.isfinite(ratio):  # the training has diverged
        return {}
    if batches is not None:
        project_average_(average, trainee.optimizer)
        update_statistics_(average, batches, run=run)
        world.average_buffers(average)
    return {"ema_ratio": ratio}
