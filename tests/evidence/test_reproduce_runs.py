"""``fixnorm reproduce`` with real trainings, killed for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TINY = Path(__file__).parents[1] / "helpers" / "tiny.py"


def start(out: Path, *names: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(TINY), "reproduce", *names, "--out", str(out), "--workers", "2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(out: Path, *names: str) -> tuple[str, str]:
    process = start(out, *names)
    printed, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return printed, said


def outcome(out: Path, name: str) -> Any:
    content = json.loads((out / f"{name}.json").read_text())
    return without_times(content["outcome"])


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def trainings(out: Path) -> list[Path]:
    return sorted((out / "trainings").glob("digits-*/result.json"))


@pytest.mark.slow
def test_an_experiment_that_is_killed_goes_on_and_finds_the_same(tmp_path: Path) -> None:
    finish(tmp_path / "whole", "fig2")

    out = tmp_path / "killed"
    driver = start(out, "fig2")
    while not trainings(out):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGSTOP)  # it starts no more trainings, however long the next takes
    second = start(out, "fig2")
    _, said = second.communicate(timeout=120)
    assert second.returncode == 2
    assert f"fixnorm: {out} is in use by" in said
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    before = {path: path.stat().st_mtime_ns for path in trainings(out)}
    assert len(before) < 6

    _, said = finish(out, "fig2")

    assert f"at most 6 trainings, {len(before)} are there" in said
    assert {path: path.stat().st_mtime_ns for path in before} == before  # not trained again
    assert len(trainings(out)) == 6
    assert outcome(out, "fig2") == outcome(tmp_path / "whole", "fig2")


@pytest.mark.slow
def test_searches_of_an_experiment(tmp_path: Path) -> None:
    """Two repetitions of each search; a second call finds all of it."""
    printed, _ = finish(tmp_path, "table1")

    content = outcome(tmp_path, "table1")["settings"][0]
    by_method = [search["method"] for search in content["searches"]]
    assert by_method == ["weight-decay"] * 2 + ["fixnorm"] * 2
    assert all(len(search["scores"]) == 2 for search in content["searches"])
    assert [search["cost"] for search in content["searches"]][:2] == [3, 3]
    assert all(search["cost"] <= 2 * 0.5 + 2 + 1 for search in content["searches"][2:])
    assert "tuned FixNorm" in printed
    for name in ("table1.html", "table1.md", "fig5-digits.png", "fig5-digits-details.png"):
        assert (tmp_path / name).exists()
    # A second call has nothing to train.
    _, said = finish(tmp_path, "fig5")
    assert "are there" in said
    assert "digits-" not in said


def test_a_training_that_cannot_run_stops_the_whole_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "trainings" / "logs").mkdir(parents=True)
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import tiny;"
        "from dataclasses import replace; from fixnorm.evidence import scales;"
        "scales.SCALES['small'] = replace(tiny.TINY, fig2=tiny.setting(model='nonsense'));"
        "from fixnorm.commands import run; run(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, str(TINY.parent), "reproduce", "fig2"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("fixnorm: ")
    assert "Traceback" not in done.stderr
