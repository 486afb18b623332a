"""Engines: local processes, Ray, or the caller's own function."""

from fixnorm.tuning.engines.engine import Died, Engine, Refused, Unfinished

__all__ = ["Died", "Engine", "Refused", "Unfinished"]
