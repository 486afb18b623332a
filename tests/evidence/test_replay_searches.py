"""Searches on landscapes whose best point and costs are known."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from fixnorm.evidence.landscapes import Landscape, NoisyLandscape
from fixnorm.evidence.replay.options import known, strategies
from fixnorm.evidence.replay.strategies import (
    Entry,
    Tracker,
    bracket_epochs,
    entries_of,
    run,
    run_halving,
    run_plan,
    run_sampler,
    rungs_of,
    space_of,
)
from fixnorm.tuning.plan import PAPER, SearchSpace

Write = Callable[..., Path]
FOLDER = Path(__file__).parents[2] / "results" / "landscapes" / "fixnorm"


def rising(lr: float, level: float, seed: int) -> float:
    """60 at lr 0.25, 70 at 1, 80 at 4, whatever the level and the seed."""
    return 70 + 10 * math.log(lr, 4)


def hill(lr: float, level: float, seed: int) -> float:
    return 60 - abs(math.log2(lr)) + seed


# -- the answer so far -----------------------------------------------------------------------------


def test_the_answer_so_far(write: Write) -> None:
    tracker = Tracker(Landscape.read(write(rising)))
    tracker.trained(4.0, 1e-4, observed=30, length=0.2, cost=0.2)
    tracker.trained(1.0, 1e-4, observed=31, length=0.2, cost=0.2)  # better: takes over
    tracker.trained(0.25, 1e-4, observed=20, length=1.0, cost=1.0)  # longer: takes over
    tracker.trained(4.0, 1e-4, observed=20, length=1.0, cost=0.8)  # continued; equal: does not
    trace = tracker.end()
    assert [(s.cost, s.lr, s.accuracy) for s in trace.steps] == [
        (0.2, 4.0, 80),
        (0.4, 1.0, 70),
        (1.4, 0.25, 60),
    ]
    assert (trace.cost, trace.trainings) == (2.2, 3)
    assert trace.at(0.1) is None
    assert [trace.at(cost).lr for cost in (0.2, 0.39, 0.4, 9)] == [4.0, 4.0, 1.0, 0.25]  # type: ignore[union-attr]


def test_the_word_of_the_strategy_is_the_last(write: Write) -> None:
    tracker = Tracker(Landscape.read(write(rising)))
    tracker.trained(1.0, 1e-4, observed=60, length=1.0, cost=1.0)
    trace = tracker.end((4.0, 1e-2))
    assert (trace.end.lr, trace.end.accuracy, trace.end.cost) == (4.0, 80, 1.0)


@pytest.mark.parametrize("name", ["tpe", "random", "successive-halving"])
def test_what_was_observed_never_falls(write: Write, name: str) -> None:
    def rough(lr: float, level: float, seed: int) -> float:
        return 60 - abs(math.log2(lr)) + random.Random(f"{lr} {level} {seed}").gauss(0, 3)

    entry = Entry(name, Landscape.read(write(rough, seeds=2)))
    for replay in range(10):
        trace = run(entry, replay=replay, seed=0, budget=12, noise="full")
        assert [s.cost for s in trace.steps] == sorted(s.cost for s in trace.steps)
        full = [s for s in trace.steps if s.cost >= 2]  # the first bracket of halving costs 2
        observed = [s.observed for s in full]
        assert observed == sorted(observed)
        for step in trace.steps:
            assert step.accuracy == entry.landscape.mean(step.lr, step.level)


# -- plans -----------------------------------------------------------------------------------------


def test_a_plan_by_hand(write: Write) -> None:
    """Accuracy 60 − |log2 lr|, whatever alpha; g stays under 0.9, so alphas ≥ 1 are one."""
    file = write(
        hill, axis="alpha", levels=(0.5, 1.0, 4.0), seeds=2, short=0.2, scale=0.9, epochs=10
    )
    landscape = Landscape.read(file)
    assert space_of(landscape) == SearchSpace(lr_min=0.25, lr_max=4.0, alphas=(0.5, 1.0, 4.0))
    for replay in range(5):
        draws = NoisyLandscape(landscape, str(replay))
        trace = run_plan("paper", draws)
        assert trace == run_plan("paper", draws)
        assert (trace.cost, trace.trainings) == (7.0, 11)  # 5·0.2 + 5, and one alpha of two
        assert trace.end.accuracy == landscape.mean(trace.end.lr, trace.end.level)
        assert trace.end.accuracy <= landscape.best.accuracy == 60.5


def test_the_short_round_decides_the_range(write: Write) -> None:
    """Without noise: the best of the first round is lr 1, that of the second 1 as well."""
    file = write(hill, axis="alpha", levels=(0.5, 1.0), short=0.2, scale=0.9)
    trace = run_plan("paper", NoisyLandscape(Landscape.read(file), "0"))
    assert trace.at(1.0).lr == 1.0  # type: ignore[union-attr]
    assert (trace.end.lr, trace.end.accuracy) == (1.0, 60)


def test_a_short_training_may_win(write: Write) -> None:
    """As in Algorithm 4: the best of all rounds, though longer trainings led on the way."""
    file = write(
        lambda lr, level, seed: hill(lr, level, seed) + level,
        axis="alpha",
        levels=(0.5, 1.0),
        short=0.2,
        lower=-5.0,
    )
    trace = run_plan("paper", NoisyLandscape(Landscape.read(file), "0"))
    assert [step.level for step in trace.steps[-2:]] == [1.0, 0.5]
    assert (trace.end.lr, trace.end.accuracy) == (1.0, 60.5)


@pytest.mark.slow
def test_the_faster_plan_on_recorded_trainings() -> None:
    """Within 0.3 % of the full plan in 95 % of the replays, at 6.5 T_max on average."""
    files = sorted(FOLDER.glob("*.json"))
    assert len(files) >= 2
    costs, near = [], []
    for file in files:
        landscape = Landscape.read(file)
        assert space_of(landscape) == PAPER
        for replay in range(200):
            draws = NoisyLandscape(landscape, str(replay), "recorded")
            full, fast = run_plan("paper", draws), run_plan("unimodal", draws)
            costs.append(fast.cost)
            near.append(fast.end.accuracy >= full.end.accuracy - 0.3)
    assert statistics.fmean(near) >= 0.95
    assert statistics.fmean(costs) <= 6.5


# -- successive halving ----------------------------------------------------------------------------


def test_rungs_and_the_cost_of_a_bracket() -> None:
    assert rungs_of(8) == (2, 4, 8)
    assert bracket_epochs((2, 4, 8)) == 4 * 2 + 2 * 2 + 1 * 4
    assert rungs_of(10) == (2, 5, 10)
    assert bracket_epochs((2, 5, 10)) == 4 * 2 + 2 * 3 + 1 * 5
    assert rungs_of(2) == (1, 2)
    assert bracket_epochs((1, 2)) == 2 * 1 + 1 * 1


def test_halving_by_hand(write: Write) -> None:
    landscape = Landscape.read(write(rising))  # 8 epochs: a bracket costs 16 of them, 2 T_max
    trace = run_halving(NoisyLandscape(landscape, "0"), budget=5, seed=3)
    assert (trace.cost, trace.trainings) == (4.0, 8)
    # lr of the eight points: every second number of the generator; the largest wins
    numbers = random.Random(3)
    lrs = [0.25 * 16 ** [numbers.random(), numbers.random()][0] for _ in range(8)]
    assert trace.end.lr == pytest.approx(max(lrs))
    assert trace.at(1.0).lr == pytest.approx(max(lrs[:4]))  # type: ignore[union-attr]
    assert trace.at(0.25).lr == pytest.approx(lrs[0])  # type: ignore[union-attr]


def test_halving_follows_the_curve_not_the_end(tmp_path: Path, write: Write) -> None:
    """Early the low lr leads: the high one, better at the end, is stopped."""
    landscape = Landscape.read(write(rising))
    crossing = {
        key: type(t)(t.accuracy, (*reversed(t.curve[:-1]), t.accuracy), None)
        if key[0][2] < 1
        else type(t)(t.accuracy, (*[0.0] * 7, t.accuracy), None)
        for key, t in landscape.trainings.items()
    }
    crossed = Landscape(
        landscape.name,
        landscape.axis,
        landscape.lrs,
        landscape.levels,
        landscape.seeds,
        crossing,
    )
    trace = run_halving(NoisyLandscape(crossed, "0"), budget=2, seed=3)
    numbers = random.Random(3)
    lrs = [0.25 * 16 ** [numbers.random(), numbers.random()][0] for _ in range(4)]
    assert trace.end.lr == pytest.approx(min(lrs))


def test_what_halving_needs(write: Write) -> None:
    landscape = Landscape.read(write(rising))
    with pytest.raises(ValueError, match="budget of at least 2 T_max but got 1"):
        run_halving(NoisyLandscape(landscape, "0"), budget=1, seed=0)
    single = Landscape.read(write(rising, epochs=1))
    with pytest.raises(ValueError, match="needs accuracies over epochs but small has one"):
        run_halving(NoisyLandscape(single, "0"), budget=9, seed=0)


# -- samplers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gp", "tpe", "random"])
@pytest.mark.parametrize("axis", ["weight_decay", "alpha"])
def test_a_sampler(write: Write, name: str, axis: str) -> None:
    landscape = Landscape.read(write(rising, axis=axis))
    trace = run_sampler(name, NoisyLandscape(landscape, "0"), budget=12, seed=5)
    assert trace == run_sampler(name, NoisyLandscape(landscape, "0"), budget=12, seed=5)
    assert (trace.cost, trace.trainings) == (12.0, 12)
    assert 0.25 <= trace.end.lr <= 4
    # without noise the answer is the best point seen, so its truth never falls
    truths = [step.accuracy for step in trace.steps]
    assert truths == sorted(truths)
    assert trace.end.accuracy == pytest.approx(rising(trace.end.lr, 0, 0))


def test_the_gp_learns_where_it_is_good(write: Write) -> None:
    landscape = Landscape.read(write(rising))
    for seed in range(3):
        trace = run_sampler("gp", NoisyLandscape(landscape, "0"), budget=15, seed=seed)
        assert trace.end.accuracy > 79.9


# -- names -----------------------------------------------------------------------------------------


def test_replays_differ_and_seeds_count(write: Write) -> None:
    entry = Entry("random", Landscape.read(write(rising)))
    first = run(entry, replay=0, seed=0, budget=3, noise="full")
    assert first == run(entry, replay=0, seed=0, budget=3, noise="full")
    assert first != run(entry, replay=1, seed=0, budget=3, noise="full")
    assert first != run(entry, replay=0, seed=1, budget=3, noise="full")


def test_who_runs_where(write: Write) -> None:
    alpha = Landscape.read(write(rising, axis="alpha"))
    decay = Landscape.read(write(rising))

    def where(*landscapes: Landscape, both: bool = False) -> list[tuple[str, str]]:
        entries = entries_of(landscapes, ("paper", "gp"), both=both)
        return [(entry.strategy, entry.landscape.axis) for entry in entries]

    assert where(alpha, decay) == [("paper", "alpha"), ("gp", "weight_decay")]
    assert where(alpha) == [("paper", "alpha"), ("gp", "alpha")]
    assert where(decay) == [("gp", "weight_decay")]
    assert where(alpha, decay, both=True)[1:] == [("gp", "weight_decay"), ("gp", "alpha")]


def test_names() -> None:
    assert known(("random", "paper", "random")) == ("paper", "random")
    with pytest.raises(ValueError, match="unknown strategy 'unimodel': did you mean unimodal"):
        known(("unimodel",))
    with pytest.raises(ValueError, match="unknown strategy 'zzz': known are paper, unimodal"):
        known(("zzz",))
    assert set(strategies()) == {
        *("paper", "unimodal", "uncapped"),
        *("gp", "tpe", "random", "successive-halving"),
    }
