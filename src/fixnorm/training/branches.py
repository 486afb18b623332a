"""Branches: where the training of a smaller alpha leaves that of a larger one.

min(g, α√C) is g while g is under the cap, so two trainings that differ in alpha alone are one, bit
for bit, until |g|/√C meets the smaller of the two. A run keeps its state at the last row end (the
lines of ``metrics.csv``) before each smaller alpha was met; a run of that alpha begins there.

A state's file is named by its step and by the largest |g|/√C up to it, so that names alone tell
which are needed, and one file serves all alphas that were met in the same row. The run writes a
state first and removes what it made needless afterwards: a kill in between leaves one too many,
which goes with the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fixnorm.methods import under_cap
from fixnorm.system import brief, regular
from fixnorm.system.numbers import check_number
from fixnorm.training.checkpoint import Damaged, read, write
from fixnorm.training.folder import RunFolder
from fixnorm.training.recipe import Recipe, differences
from fixnorm.training.result import RunEnd
from fixnorm.training.resume import RunState

__all__ = ["Branches", "check_branches", "read_start", "start_of"]

_NAME = re.compile(r"step-(\d+)-scale-(nan|inf|[\d.]+(?:e[+-]?\d+)?)\.ckpt")


class Kept(NamedTuple):
    """A state in its file."""

    step: int
    scale: float
    """The largest |g|/√C of the training up to it."""
    path: Path


class Branches:
    """The states that a run keeps, in its folder ``branches/``."""

    def __init__(self, folder: Path, alphas: Sequence[float] = ()) -> None:
        self._folder, self._alphas = folder, alphas
        self._all_met = not alphas

    def end_row(self, state: RunState) -> None:
        """Keep the state as long as an alpha is left to be met; all processes have to call it.

        The first state past the last alpha is kept, too: until the run ends, it tells that all
        were met.
        """
        scale = state.scale
        if self._all_met or scale is None or state.step == state.steps:
            return
        self._all_met = not any(under_cap(scale, alpha) for alpha in self._alphas)
        taken = state.taken()
        if taken is not None:
            write(self._folder / f"step-{state.step:09d}-scale-{scale!r}.ckpt", taken)
            kept = self.kept()
            _keep_only({*_before(kept, self._alphas), kept[-1]}, kept)

    def end(self, state: RunState) -> None:
        """Keep the states that others may begin from: a cap that was never met needs none."""
        scale, kept = state.scale, self.kept()
        if self._alphas and scale is not None:
            met = [alpha for alpha in self._alphas if not under_cap(scale, alpha)]
            _keep_only(_before(kept, met), kept)

    def forget_after(self, step: int) -> None:
        """Remove what an earlier life of the run kept of steps that are now done again."""
        kept = self.kept()
        _keep_only({state for state in kept if state.step <= step}, kept)

    def kept(self) -> list[Kept]:
        """All that is there, the earliest first."""
        if not self._folder.is_dir():
            return []
        files = (path for path in self._folder.iterdir() if regular(path))
        found = ((_NAME.fullmatch(path.name), path) for path in files)
        return sorted(Kept(int(n[1]), float(n[2]), path) for n, path in found if n)


def _before(kept: Iterable[Kept], alphas: Iterable[float]) -> set[Kept]:
    """For each alpha the last state before it was met."""
    early = ([state for state in kept if under_cap(state.scale, alpha)] for alpha in alphas)
    return {states[-1] for states in early if states}


def _keep_only(needed: set[Kept], kept: Iterable[Kept]) -> None:
    for state in kept:
        if state not in needed:
            state.path.unlink()


def check_branches(alphas: Iterable[float], recipe: Recipe) -> None:
    """Refuse alphas that no branch of a run of the recipe can have."""
    for alpha in alphas:
        check_number("--branches", alpha)
        if recipe.alpha is None:
            raise ValueError(f"--branches: method {recipe.method!r} has no cap; leave it out")
        if not 0 < alpha < recipe.alpha:
            raise ValueError(
                f"--branches must be greater than 0 and less than alpha={recipe.alpha:g} but got"
                f" {brief(alpha)}"
            )


def start_of(origin: Path, recipe: Recipe) -> Path | None:
    """The state of another run that a run of the recipe goes on from; none if it kept none.

    Refuses a run that is not the same training up to the cap, has not come to it, or never did.
    """
    run = RunFolder(origin)
    trunk, alpha = run.read_recipe(), recipe.alpha
    if alpha is None or trunk.alpha is None:
        capless = recipe if alpha is None else trunk
        raise ValueError(f"--from {origin}: method {capless.method!r} has no cap; leave it out")
    different = differences(trunk.to_dict() | {"alpha": alpha}, recipe)
    if different:
        raise ValueError(
            f"--from {origin} is a run of another recipe: {different}; only alpha may differ"
        )
    if alpha >= trunk.alpha:
        raise ValueError(
            f"--from {origin}: alpha must be less than its {trunk.alpha:g} but got {alpha:g}"
        )
    end = run.ended(RunEnd, advice="leave out --from")
    kept = Branches(run.branches).kept()
    if end is None and all(under_cap(state.scale, alpha) for state in kept):
        raise ValueError(
            f"--from {origin} is not finished and not known to have met alpha={alpha:g}: let it go"
            f" on with --branches {alpha:g}"
        )
    scale = None if end is None or end.diverged else end.largest_scale
    if scale is not None and under_cap(scale, alpha):
        raise ValueError(
            f"--from {origin} never met alpha={alpha:g}, its largest was {scale:.4g}: its training"
            " is the one of this alpha, bit for bit; take its result"
        )
    return next((state.path for state in _before(kept, [alpha])), None)


def read_start(path: Path, state: RunState) -> dict[str, Any]:
    """What a run of the file's, with a larger alpha, has in common with the run of ``state``.

    It is what the run would have come to by itself. Anything else is :class:`Damaged`.
    """
    found, recipe = read(path), state.trainee.recipe
    different = differences(found["recipe"] | {"alpha": recipe.alpha}, recipe)
    if different:
        raise Damaged(f"{path} is a state of another recipe: {different}")
    found["recipe"] = recipe.to_dict()
    state.check(path, found)
    scale = found["largest_scale"]
    if scale is None or recipe.alpha is None or not under_cap(scale.item(), recipe.alpha):
        raise Damaged(f"{path} is a state from after alpha={recipe.alpha} was met")
    cap = state.trainee.cap()
    rows = [row | {"cap": cap} for row in found["rows"]]
    return found | {"rows": rows, "began": found["step"], "seconds": 0.0}
