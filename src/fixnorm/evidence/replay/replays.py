"""All replays, one after another or in several processes; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, nullcontext

from fixnorm.evidence.landscapes import AXES, Landscape
from fixnorm.evidence.replay.options import Options, known, strategies
from fixnorm.evidence.replay.strategies import (
    Entry,
    Trace,
    entries_of,
    run,
)
from fixnorm.evidence.replay.summary import Summary, WorkloadResult
from fixnorm.system.pool import LeashedPool

__all__ = ["Progress", "replay_all", "workloads_of"]

_CHUNK = 5
"""Replays that a process does at a time."""

Progress = Callable[[Entry, int], None]
"""Told after so many replays of an entry."""


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
    with _one_thread() if _uses_torch(entries) else nullcontext():
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
    pool = LeashedPool(workers, begin=_set_one_thread if _uses_torch(entries) else None)
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


def _uses_torch(entries: Sequence[Entry]) -> bool:
    """Optuna's Gaussian processes do; nothing else here needs what takes seconds to load."""
    return any(entry.strategy == "gp" for entry in entries)


def _set_one_thread() -> None:
    """The matrices of a Gaussian process are too small for more."""
    import torch

    torch.set_num_threads(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    _set_one_thread()
    try:
        yield
    finally:
        torch.set_num_threads(before)
