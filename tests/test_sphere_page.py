"""lr/‖W₀‖²: the norms are those of the models, and what is computed of them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """The script, imported as where a script is run from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("sphere_page")


@pytest.mark.slow
def test_the_stored_norms_are_those_of_the_models(page: ModuleType) -> None:
    stored = json.loads((ROOT / "results" / "sphere_norms.json").read_text())["norms"]

    assert stored.keys() == {page.recipes.get(n).model for n in page.recipes.groups()["Table 2"]}
    norm = page.sphere_norms.norm_of("mobilenetv2", seed=1)
    assert norm == pytest.approx(stored["mobilenetv2"][1], rel=1e-4)


def test_exponents_of_a_law_that_is_known(page: ModuleType) -> None:
    """lr = 3 · ‖W‖^2·0.5 · T^−0.4 · batch^0.25, to the digits that are printed."""
    places = [(1, 10, 8), (2, 10, 64), (4, 1000, 8), (8, 300, 512), (16, 20, 64), (3, 77, 16)]
    rows = [
        page.Best(
            name="", family="", lr=3 * radius * T**-0.4 * batch**0.25, radius=radius, length=T,
            batch=batch,
        )
        for radius, T, batch in places
    ]  # fmt: skip

    assert page._exponents(rows, 3) == ("+0.50 ± 0.00", "−0.40 ± 0.00", "+0.25 ± 0.00")
    units = page.QUANTITIES
    assert units["lr/‖W‖²"](rows[1]) == pytest.approx(rows[1].lr / 4)
    assert units["lr·T^0.4"](rows[1]) == pytest.approx(rows[1].lr * 10**0.4)


def test_spreads(page: ModuleType) -> None:
    assert page._factor([1.0, 4.0]) == "×÷ 2.67"  # ln 4 / √2
    assert page._spread([1.0, 3.0]) == "71 % (3.00)"
    assert page._spread([1.0]) == "–"


def test_the_small_settings_are_those_with_one_momentum(page: ModuleType) -> None:
    found = {best.name: best for best in page.of_small_settings()}

    assert "plain-sgd" not in found
    assert "momentum-0.5" not in found
    assert found["4-wide"].lr == 0.65075  # as docs/auto-lr.md has it
    assert found["2500-steps"].length == 2500
