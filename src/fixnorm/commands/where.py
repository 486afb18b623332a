"""Where the trainings of a command run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fixnorm.tuning.engines import Engine
from fixnorm.tuning.engines.local import LocalEngine, default_workers
from fixnorm.tuning.run import Runs

__all__ = ["Where"]

_ENGINES = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class Where:
    """The options of that, as given."""

    engine: str
    workers: int | None
    nproc_per_trial: int
    gpus_per_trial: float
    cpus_per_trial: float
    address: str | None

    def __post_init__(self) -> None:
        if self.engine not in _ENGINES:
            raise ValueError(f"engine must be {' or '.join(_ENGINES)} but got {self.engine!r}")

    @property
    def at_a_time(self) -> int:
        """Trainings side by side on this machine."""
        gpus = torch.cuda.device_count()
        return self.workers or default_workers(gpus=gpus, processes=self.nproc_per_trial)

    def new_engine(self, runs: Runs) -> Engine:
        """Ready to start trainings."""
        if self.engine == "ray":
            from fixnorm.tuning.engines.ray_tasks import RayEngine

            return RayEngine(
                runs, cpus=self.cpus_per_trial, gpus=self.gpus_per_trial, address=self.address
            )
        return LocalEngine(runs, workers=self.at_a_time, gpus=torch.cuda.device_count())
