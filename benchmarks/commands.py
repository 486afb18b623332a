"""How long commands take to answer, each in a process of its own, and which load torch.

python benchmarks/commands.py [--rounds 5] [--cpu]

The best of some rounds, after one that warms the disk's cache: wall time, and the processor's time
(user and system), which a busy machine does not lengthen as much. Targets are of one quiet core and
judged by wall time; with ``--cpu`` by the processor's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from timing import report

_LANDSCAPE = next((Path(__file__).parents[1] / "results/landscapes/fixnorm").glob("*.json"))
_COMMANDS = ("audit", "recipes", "train", "tune", "report", "replay", "reproduce", "export", "fold")
AT_ONCE = 0.5
TARGETS: dict[str, float] = {
    "--help": AT_ONCE,
    "--version": AT_ONCE,
    **{f"{command} --help": AT_ONCE for command in _COMMANDS},
    "nonsense": AT_ONCE,
    "train digits --nonsense": AT_ONCE,
    "train digit": AT_ONCE,
    "train digits --set lrr=1": AT_ONCE,
    "train cifar10-small --data nowhere": AT_ONCE,
    "tune digits --plan nonsense": AT_ONCE,
    "report nowhere": AT_ONCE,
    "replay nowhere": AT_ONCE,
    "reproduce fig9": AT_ONCE,
    "export nowhere": AT_ONCE,
    "fold nowhere out.pth": AT_ONCE,
    "recipes": 1.0,
    "audit timm/resnet50d": 10.0,
}
"""Seconds."""
MEASURED = ("report study", f"replay {_LANDSCAPE} --strategies paper --replays 20")
"""Without a target but to load no torch."""
_SEARCH = """
import fixnorm
def train(lr, alpha, steps):
    return -abs(lr - 1) - abs(alpha - 2)
fixnorm.tune(train, steps=10, splits=2, alphas=(0.5, 2.0), out="study")
"""


class Taken(NamedTuple):
    """By one command, in seconds."""

    wall: float
    cpu: float


def taken(words: list[str], place: Path) -> Taken:
    """Run the command once."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fixnorm", *words]
    before, began = _cpu(), time.perf_counter()
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    wall, cpu = time.perf_counter() - began, _cpu() - before
    if done.returncode not in (0, 2):
        raise RuntimeError(f"fixnorm {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return Taken(wall, cpu)


def loads_torch(words: list[str], place: Path) -> bool:
    """Whether the command imports torch, by the interpreter's own list."""
    command = [sys.executable, "-X", "importtime", "-m", "fixnorm", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    return any(line.endswith("| torch") for line in done.stderr.splitlines())


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="judge by the processor's time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        subprocess.run([sys.executable, "-c", _SEARCH], cwd=place, check=True, capture_output=True)
        for line in (*TARGETS, *MEASURED):
            words = line.split()
            torch = "with torch" if loads_torch(words, place) else "no torch"  # it warms up, too
            rounds = [taken(words, place) for _ in range(given.rounds)]
            wall, cpu = min(t.wall for t in rounds), min(t.cpu for t in rounds)
            shown = line.replace(str(_LANDSCAPE), "LANDSCAPE")
            what = f"{shown}  ({wall:.2f} s, cpu {cpu:.2f} s, {torch})"
            if line in TARGETS:
                report(what, cpu if given.cpu else wall, TARGETS[line], unit="s")
            else:
                print(what)


if __name__ == "__main__":
    main()
