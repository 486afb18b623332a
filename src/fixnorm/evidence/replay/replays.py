"""All replays, one after another or in several processes; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from fixnorm.evidence.landscapes import AXES, NOISES, Landscape
from fixnorm.evidence.replay.strategies import (
    Entry,
    Trace,
    entries_of,
    known,
    run,
    strategies,
)
from fixnorm.evidence.replay.summary import Summary, WorkloadResult
from fixnorm.system import regular
from fixnorm.system.numbers import check_whole
from fixnorm.system.pool import LeashedPool

__all__ = ["Options", "Progress", "read_landscapes", "replay_all", "workloads_of"]

_CHUNK = 5
"""Replays that a process does at a time."""

Progress = Callable[[Entry, int], None]
"""Told after so many replays of an entry."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the replays depend on, beside the landscapes."""

    strategies: tuple[str, ...] | None = None
    """By name; all that fit where none are given."""
    replays: int = 200
    seed: int = 0
    budget: int = 25
    """Of all but the plans, in T_max."""
    noise: str = "full"
    both: bool = False
    """Whether the samplers and successive halving run on lr × alpha, too."""

    def __post_init__(self) -> None:
        check_whole("replays", self.replays, least=1, most=1_000_000)
        check_whole("seed", self.seed, least=0, most=2**32 - 1)
        check_whole("budget", self.budget, least=1, most=10_000)
        if self.noise not in NOISES:
            raise ValueError(f"noise must be {' or '.join(NOISES)} but got {self.noise!r}")
        if self.strategies is not None and not known(self.strategies):
            raise ValueError(f"--strategies names none: give some of {', '.join(strategies())}")


def read_landscapes(paths: Sequence[Path]) -> list[Landscape]:
    """From JSON files, and from all JSON files of folders."""
    files: list[Path] = []
    for path in paths:
        files += sorted(filter(regular, path.rglob("*.json"))) if path.is_dir() else [path]
    if not files:
        raise ValueError(
            f"no landscape in {', '.join(map(str, paths))}: give the JSON file of a recording"
        )
    return [Landscape.read(file) for file in files]


def workloads_of(
    landscapes: Sequence[Landscape], options: Options
) -> dict[str, tuple[list[Landscape], list[Entry]]]:
    """By name, the landscapes of one workload with those who run on them."""
    grouped: dict[str, list[Landscape]] = {}
    for landscape in landscapes:
        group = grouped.setdefault(landscape.name, [])
        if any(other.axis == landscape.axis for other in group):
            raise ValueError(
                f"two landscapes of {landscape.name} are over {AXES[landscape.axis]}: give one"
            )
        group.append(landscape)
        group.sort(key=lambda other: list(AXES).index(other.axis))
    names = known(options.strategies or tuple(strategies()))
    workloads = {
        name: (group, entries_of(group, names, both=options.both))
        for name, group in grouped.items()
    }
    running = {entry.strategy for _, entries in workloads.values() for entry in entries}
    for name in options.strategies or ():
        if name not in running:
            raise ValueError(f"{name} needs a landscape over {AXES['alpha']} but none is given")
    return workloads


def replay_all(
    landscapes: Sequence[Landscape],
    options: Options,
    *,
    workers: int = 1,
    progress: Progress = lambda entry, count: None,
) -> list[WorkloadResult]:
    """Replay every strategy on every landscape it fits."""
    workloads = workloads_of(landscapes, options)
    entries = [entry for _, fitting in workloads.values() for entry in fitting]
    found: list[dict[int, Trace]] = [{} for _ in entries]
    with _one_thread():
        for place, replays, traces in _replayed(entries, options, workers):
            found[place] |= dict(zip(replays, traces, strict=True))
            progress(entries[place], len(replays))
    summaries = iter(
        Summary(entry, tuple(traces[k] for k in sorted(traces)))
        for entry, traces in zip(entries, found, strict=True)
    )
    return [
        WorkloadResult(name, tuple(group), tuple(next(summaries) for _ in fitting))
        for name, (group, fitting) in workloads.items()
    ]


def _replayed(
    entries: Sequence[Entry], options: Options, workers: int
) -> Iterator[tuple[int, range, list[Trace]]]:
    """The place of an entry, numbers of replays of it, and their traces, as they end."""
    size = 1 if workers == 1 else _CHUNK
    chunks = [
        (place, range(start, min(start + size, options.replays)))
        for place in range(len(entries))
        for start in range(0, options.replays, size)
    ]
    if workers == 1:
        for place, replays in chunks:
            yield place, replays, _traces(entries[place], replays, options)
        return
    pool = LeashedPool(workers, begin=partial(torch.set_num_threads, 1))
    try:
        jobs = {
            pool.submit(_traces, entries[place], replays, options): (place, replays)
            for place, replays in chunks
        }
        for job in as_completed(jobs):
            yield *jobs[job], job.result()
    finally:
        pool.end()


def _traces(entry: Entry, replays: range, options: Options) -> list[Trace]:
    given = {"seed": options.seed, "budget": options.budget}
    return [run(entry, replay=replay, noise=options.noise, **given) for replay in replays]


@contextmanager
def _one_thread() -> Iterator[None]:
    """The matrices of a Gaussian process are too small for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
