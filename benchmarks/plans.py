"""The faster plan against Algorithm 4, replayed on recorded trainings.

python benchmarks/plans.py [FILE ...]     # default: results/landscapes/fixnorm/*.json
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from fixnorm.tuning.landscape import Landscape, Replay, replay
from fixnorm.tuning.plan import PAPER, paper
from fixnorm.tuning.unimodal import unimodal

NEAR = 0.3
RECORDED = Path(__file__).parents[1] / "results" / "landscapes" / "fixnorm"


def line(name: str, full: list[Replay], fast: list[Replay]) -> str:
    near = statistics.fmean(
        b.accuracy >= a.accuracy - NEAR for a, b in zip(full, fast, strict=True)
    )
    lost = statistics.fmean(a.accuracy - b.accuracy for a, b in zip(full, fast, strict=True))
    costs = [statistics.fmean(r.cost for r in replays) for replays in (full, fast)]
    return (
        f"{name:<16}{costs[0]:>8.2f}{costs[1]:>10.2f}{100 * near:>14.1f} %{lost:>14.3f}"
        f"{statistics.fmean(r.accuracy for r in full):>12.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted(RECORDED.glob("*.json")))
    parser.add_argument("--draws", type=int, default=500)
    given = parser.parse_args()
    print(
        f"{'landscape':<16}{'paper':>8}{'unimodal':>10}{'within 0.3 %':>16}{'mean loss':>14}",
        end="",
    )
    print(f"{'accuracy':>12}")
    all_full: list[Replay] = []
    all_fast: list[Replay] = []
    for file in given.files:
        landscape = Landscape.read(file)
        full = [replay(paper, PAPER, landscape, draw=d) for d in range(given.draws)]
        fast = [replay(unimodal, PAPER, landscape, draw=d) for d in range(given.draws)]
        print(line(landscape.name, full, fast))
        all_full, all_fast = all_full + full, all_fast + fast
    print(line("all", all_full, all_fast))


if __name__ == "__main__":
    main()
