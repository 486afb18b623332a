"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fixnorm
from fixnorm.commands import run


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        run(list(arguments))
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_audit_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "audit", "resnet8")
    assert code == 0
    assert "fc.weight" in out
    assert out.splitlines()[-2:] == [
        "29 parameters: 9 fixed, 1 head, 19 free",
        "scope: global, as most weights are scale-free",
    ]


def test_audit_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "audit", "timm/resnet10t", "--json", "--size", "3x64x64")
    found = json.loads(out)
    assert code == 0
    assert found["model"] == "timm/resnet10t"
    assert found["counts"]["head"] == 1
    assert {"name", "shape", "role", "figure"} <= found["rows"][0].keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "resnet9"], "unknown model 'resnet9'"),
        (["audit", "timm/resnet50dd"], "timm/resnet50d"),
        (["audit", "resnet8", "--size", "3x"], "--size must look like 3x224x224 but got '3x'"),
        (["audit", "resnet8", "--size", "5x32x32"], "could not be run on the sample"),
        (["audit"], "Missing argument"),
        (["audti"], "No such command 'audti'"),
        (["audit", "resnet8", "--jsn"], "No such option: --jsn"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("fixnorm: ")


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(ValueError, match="unknown model"):
        run(["--debug", "audit", "resnet9"])


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version")[1].strip() == fixnorm.__version__
    assert "Example: fixnorm audit" in call(capsys, "audit", "--help")[1]


@pytest.mark.parametrize(
    ("missing", "command", "message"),
    [
        ("typer", "--help", "the command line needs typer: pip install 'fixnorm[train]'"),
        # Asked for by the search, not by the command line: no training waits for it.
        ("optuna", "tune", "this needs optuna: pip install 'fixnorm[tune]'"),
    ],
)
def test_missing_extra_is_said_by_name(missing: str, command: str, message: str) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None; "
        f"from fixnorm.cli import main; sys.argv = ['fixnorm', '{command}']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"fixnorm: {message}\n"
