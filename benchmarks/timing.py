"""How benchmarks tell what they timed."""

from __future__ import annotations

from fixnorm.evidence.step_cost import alternate, ratio

__all__ = ["alternate", "ratio", "report"]


def report(what: str, value: float, target: float, unit: str = "×") -> None:
    """One line: the figure, its target, and whether it is met."""
    verdict = "met" if value <= target else "NOT met"
    print(f"{what:<66} {value:7.3f} {unit}   target ≤ {target:g} {unit}   {verdict}")
