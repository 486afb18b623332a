"""What every builder is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `create`, checked; `None` leaves the choice to the model."""

    num_classes: int | None
    drop_path: float
    drop: float
    in_chans: int | None

    def __post_init__(self) -> None:
        for name, count in (("num_classes", self.num_classes), ("in_chans", self.in_chans)):
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1 but got {count}")
        for name, rate in (("drop_path", self.drop_path), ("drop", self.drop)):
            if not 0.0 <= rate < 1.0:
                raise ValueError(f"{name} must be in [0, 1) but got {rate}")
