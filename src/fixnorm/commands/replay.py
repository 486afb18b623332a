"""``fixnorm replay``: searches on recorded landscapes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fixnorm.commands.options import same_fields, takes
from fixnorm.starting import loading

if TYPE_CHECKING:
    from fixnorm.evidence.replay.strategies import Entry

_RECORDED = Path("results/landscapes")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command is asked for."""

    landscapes: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="LANDSCAPE.json",
            help=f"Recordings, or folders of them (default: {_RECORDED}).",
        ),
    ] = None
    strategies: Annotated[
        str | None,
        typer.Option(
            help="With commas between: paper, unimodal, uncapped, gp, tpe, random,"
            " successive-halving (default: all)."
        ),
    ] = None
    replays: Annotated[int, typer.Option(help="Replays of each strategy.")] = 200
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0
    budget: Annotated[
        int, typer.Option(help="T_max for each search but the plans, which end by themselves.")
    ] = 25
    noise: Annotated[
        str,
        typer.Option(
            help="full: of the size that the recorded seeds let expect; recorded: a recorded seed"
            " as it is, which is too little."
        ),
    ] = "full"
    both: Annotated[
        bool,
        typer.Option(
            "--both", help="Run all but the plans on lr × alpha, too, not on weight decay alone."
        ),
    ] = False
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes.")] = 1
    out: Annotated[Path, typer.Option(help="Folder for replay.json, regret.png and table.md.")] = (
        Path("runs/replay")
    )
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False


@takes(Wanted)
def replay(wanted: Wanted) -> None:
    """Replay searches on recorded landscapes, hundreds of times: regret against cost.

    Plans run on lr × alpha, the others on lr × weight decay (on lr × alpha where that is all).

    A training is the interpolated mean of the landscape plus the noise of a recorded training.

    Successive halving stops trainings of full length while lr is high: these are no short ones.

    gp takes 1 to 4 seconds a replay: the longer without the package greenlet.

    Example: fixnorm replay results/landscapes --strategies paper,unimodal --replays 1000
    """
    from fixnorm.evidence.landscapes import read_landscapes
    from fixnorm.evidence.replay.options import Options

    named = wanted.strategies
    names = None if named is None else tuple(named.replace(",", " ").split())
    options = same_fields(Options, wanted, strategies=names)
    found = read_landscapes(wanted.landscapes or [_RECORDED])
    with loading():  # Optuna, and what draws
        from fixnorm.evidence.replay.output import check_place, content, table_of, write_replay
        from fixnorm.evidence.replay.replays import replay_all, workloads_of
        from fixnorm.report.tables import wide_console
    check_place(wanted.out)
    entries = [e for _, entries in workloads_of(found, options).values() for e in entries]
    with ReplayView(entries, wanted.replays) as view:
        results = replay_all(found, options, workers=wanted.workers, progress=view.done)
    paths = write_replay(results, options, wanted.out)
    if wanted.as_json:
        print(json.dumps(content(results, options)))
        return
    console = wide_console()
    for result in results:
        table_of(result, replays=wanted.replays).print(console)
        console.print()
    print("\n".join(map(str, paths)))


class ReplayView:
    """A bar for each strategy on a terminal; elsewhere a line when one is done."""

    def __init__(self, entries: Sequence[Entry], replays: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bars = {
            (entry.landscape.name, entry.title): self._progress.add_task(
                f"{entry.landscape.name}: {entry.title}", total=replays
            )
            for entry in entries
        }
        self._left = dict.fromkeys(self._bars, replays)

    def __enter__(self) -> ReplayView:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def done(self, entry: Entry, count: int) -> None:
        """So many more replays of an entry have ended."""
        key = (entry.landscape.name, entry.title)
        self._progress.advance(self._bars[key], count)
        self._left[key] -= count
        if not self._left[key] and self._progress.disable:
            print(f"{entry.landscape.name}: {entry.title} is done", file=sys.stderr)
