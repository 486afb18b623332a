"""Rules that several settings share."""

import math
from typing import Any


def check_least(settings: Any, **least: int) -> None:
    """Each named field is None or at least its number."""
    for name, lowest in least.items():
        value = getattr(settings, name)
        if value is not None and value < lowest:
            raise ValueError(f"{name} must be at least {lowest} but got {value}")


def check_normalisation(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    """Finite means, positive deviations."""
    if not all(math.isfinite(m) for m in mean):
        raise ValueError(f"mean must be finite but got {mean}")
    if not all(math.isfinite(s) and s > 0 for s in std):
        raise ValueError(f"std must be positive and finite but got {std}")


def check_channels(settings: Any, *, channels: int, name: str) -> None:
    """One mean and one deviation, or one a channel."""
    for option in ("mean", "std"):
        values = getattr(settings, option)
        if len(values) not in (1, channels):
            raise ValueError(
                f"{option} must hold 1 or {channels} values for {name} but got {values}"
            )
