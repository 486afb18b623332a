"""What an estimate of hours is made of takes two seconds, and its digits are nobody's test."""

from __future__ import annotations

import pytest

from fixnorm.tuning import estimate


@pytest.fixture(autouse=True)
def _a_short_look_at_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_MEASURED", 0.05)
