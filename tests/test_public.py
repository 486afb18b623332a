"""The surface of the package: what it offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import fixnorm


def test_public_names_are_pinned() -> None:
    assert sorted(fixnorm.__all__) == [
        "Audit",
        "FixNormConv2d",
        "FixNormLinear",
        "MeanCrossBoundaryRisk",
        "WeightNormConv2d",
        "WeightNormLinear",
        "__version__",
        "attach",
        "audit",
        "convert",
        "fold",
        "mean_cross_boundary_risk",
        "param_groups",
        "tune",
    ]
    assert all(hasattr(fixnorm, name) for name in fixnorm.__all__)


def test_import_wakes_nothing_but_torch() -> None:
    asleep = (
        "timm torchvision optuna ray lightning transformers accelerate sklearn typer rich pydantic"
    )
    code = f"import sys, fixnorm; print([m for m in '{asleep}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
