"""The surface of the package: what it offers, and what importing it costs."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import fixnorm


def test_public_names_are_pinned() -> None:
    assert sorted(fixnorm.__all__) == [
        "Audit",
        "FixNormConv2d",
        "FixNormLinear",
        "Handle",
        "MeanCrossBoundaryRisk",
        "WeightNormConv2d",
        "WeightNormLinear",
        "__version__",
        "attach",
        "audit",
        "convert",
        "fold",
        "fold_state_dict",
        "handle_of",
        "mean_cross_boundary_risk",
        "param_groups",
        "tune",
    ]
    assert all(hasattr(fixnorm, name) for name in fixnorm.__all__)


def test_every_public_name_says_what_it_does() -> None:
    for name in fixnorm.__all__:
        public = getattr(fixnorm, name)
        if not callable(public):
            continue
        methods = vars(public).items() if isinstance(public, type) else ()
        for part, value in ((name, public), *methods):
            if not part.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{part}"
                assert len(value.__doc__.split()) > 3, f"{name}.{part}"


def test_no_module_has_the_name_of_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(fixnorm.__path__)}
    assert not modules & set(fixnorm.__all__)


def test_import_wakes_nothing_but_torch() -> None:
    asleep = (
        "timm torchvision optuna ray lightning transformers accelerate sklearn typer rich pydantic"
    )
    code = f"import sys, fixnorm; print([m for m in '{asleep}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
