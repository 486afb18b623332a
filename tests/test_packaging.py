"""Wheel and sdist are whole, and the wheel alone runs the README's first screen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # not the checkout
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a new environment that has the wheel.

    What it depends on is lent by this environment through a .pth file: installing torch once more
    would take gigabytes, and which versions are needed is tested by ``.ci/minimum``.
    """
    home = tmp_path_factory.mktemp("home") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    own = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    run(*own, "install", "--no-deps", "--no-index", built[0], cwd=home.parent)
    (packages,) = home.glob("lib/python*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "lent.pth").write_text("\n".join(lent))
    return home / "bin"


def test_twine_is_content(built: tuple[Path, Path]) -> None:
    said = run(sys.executable, "-m", "twine", "check", "--strict", *built, cwd=ROOT)
    assert said.count("PASSED") == 2


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
    held = {name.removeprefix("fixnorm/") for name in names if name.startswith("fixnorm/")}
    package = ROOT / "src" / "fixnorm"
    files = {f.relative_to(package).as_posix() for f in package.rglob("*") if f.is_file()}
    assert held == {name for name in files if "__pycache__" not in name}
    assert {"py.typed", "report/templates/report.css", "report/templates/searches.html.j2"} <= held
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fixnorm"}


def test_the_sdist_can_be_tested(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    for wanted in ("tests/test_norm.py", "docs/index.md", "mkdocs.yml", "examples/digits.py"):
        assert wanted in names


def test_the_wheel_is_what_runs(installed: Path) -> None:
    where = run(
        installed / "python", "-c", "import fixnorm; print(fixnorm.__file__)", cwd=installed
    )
    assert Path(where.strip()).is_relative_to(installed.parent)


def test_the_three_lines_run(installed: Path) -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    network = "nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(72, 4)"
    script = [
        "import torch, fixnorm; from torch import nn",
        f"model = nn.Sequential({network}); epochs, loader = 2, range(10)",
        added[0].replace("alpha=1.0", "alpha=1.0, sample=torch.randn(4, 3, 5, 5)"),
        *added[1:],
        "model(torch.randn(4, 3, 5, 5)).square().sum().backward(); optimizer.step()",
        "fixed = optimizer.param_groups[0]",
        "norm = sum(p.square().sum() for p in fixed['params']).sqrt().item()",
        "print(abs(norm / fixed['fixnorm_target'] - 1) < 1e-5)",
    ]
    assert run(installed / "python", "-c", "\n".join(script), cwd=installed).strip() == "True"


def test_the_first_command_runs(installed: Path, tmp_path: Path) -> None:
    """The README's search, cut to trainings of one epoch and the fewest of them."""
    (command,) = re.findall(r"\.venv/bin/(fixnorm tune.*)$", README, re.MULTILINE)
    _, *words = command.split()
    short = "--set epochs=1 --set warmup_epochs=0 --alphas 0.5"
    run(installed / "fixnorm", *words, *short.split(), cwd=tmp_path)
    page = (tmp_path / "runs/tune-few-digits/report.html").read_text()
    assert "Beside weight decay, trained anew" in page
