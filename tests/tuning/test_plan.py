"""Algorithm 4 literally: the paper's learning rates, its cost, and what holds for any accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixnorm.tuning.auto import auto
from fixnorm.tuning.plan import PAPER, Advice, SearchSpace, paper, uniform_split
from fixnorm.tuning.plans import plan_of
from fixnorm.tuning.trial import Result, Trial
from fixnorm.tuning.uncapped import uncapped
from fixnorm.tuning.unimodal import cannot_win, unimodal

Plan = Callable[..., Advice]
Found = Callable[[Trial], Result]
PLANS = [paper, unimodal, uncapped]
EVERY = [*PLANS, auto]


def run(plan: Plan, space: SearchSpace, found: Found) -> tuple[Advice, dict[Trial, Result], list]:
    """The whole search; also the trials that were trained, in order."""
    outcomes: dict[Trial, Result] = {}
    trained: list[Trial] = []
    while True:
        advice = plan(space, outcomes)
        if advice.over:
            return advice, outcomes, trained
        for trial, source in advice.free.items():
            outcomes[trial] = outcomes[source]
        for trial in advice.train:
            outcomes[trial] = found(trial)
            trained.append(trial)


def of(accuracy: Callable[[Trial], float]) -> Found:
    return lambda trial: Result(accuracy=accuracy(trial.slot))


# -- the paper's numbers ---------------------------------------------------------------------------


def test_first_round() -> None:
    advice = paper(PAPER, {})
    assert [trial.slot.lr for trial in advice.train] == [0.8, 1.4, 2.0, 2.6, 3.2]
    assert {trial.slot.alpha for trial in advice.train} == {0.5}
    assert {trial.slot.fraction for trial in advice.train} == {0.2}


def test_the_paper_announces_eleven_trainings_of_full_length() -> None:
    assert PAPER.cost == 11
    assert PAPER.trainings == 15


COCO = SearchSpace(lr_min=0.005, lr_max=0.1)


@pytest.mark.parametrize(
    ("space", "winner", "second"),
    [
        (PAPER, 2.6, [0.2, 0.8, 1.4, 2.0, 2.6]),  # ResNet50-D, Figure 5
        (PAPER, 0.8, [0.2, 0.35, 0.5, 0.65, 0.8]),  # MobileNetV2, Figure 5
        (PAPER, 1.4, [0.2, 0.5, 0.8, 1.1, 1.4]),
        (PAPER, 2.0, [0.2, 0.65, 1.1, 1.55, 2.0]),
        (PAPER, 3.2, [0.2, 0.95, 1.7, 2.45, 3.2]),
        (COCO, 0.024, [0.005, 0.00975, 0.0145, 0.01925, 0.024]),
    ],
)
def test_second_round(space: SearchSpace, winner: float, second: list[float]) -> None:
    first = {t: Result(accuracy=float(t.slot.lr == winner)) for t in paper(space, {}).train}
    assert [trial.slot.lr for trial in paper(space, first).train] == second


# Every (lr, alpha) of Tables 1 and 2, of Cityscapes and of COCO, and a round winner it needs.
PRINTED = [
    (PAPER, 0.8, 0.5, 16.0),  # MobileNetV2, 150 epochs
    (PAPER, 0.8, 0.35, 8.0),  # MobileNetV2, 350 epochs
    (PAPER, 0.8, 0.5, 4.0),  # EfficientNet-B0
    (PAPER, 1.4, 0.8, 8.0),  # EfficientNet-B1
    (PAPER, 0.8, 0.5, 8.0),  # MobileNetV2×1.12*
    (PAPER, 0.8, 0.65, 4.0),  # MobileNetV2×1.54*
    (PAPER, 2.6, 1.4, 0.5),  # ResNet50-D, 120 epochs
    (PAPER, 2.0, 1.1, 0.5),  # ResNet50-D, 350 epochs
    (PAPER, 1.4, 1.1, 1.0),  # ResNet50-D*
    (COCO, 0.043, 0.0335, 1.0),  # Cityscapes, poly
    (COCO, 0.081, 0.043, 1.0),  # Cityscapes, cosine
    (COCO, 0.024, 0.0145, 0.5),  # COCO
    (COCO, 0.043, 0.0145, 0.5),  # the same, from another winner
]


@pytest.mark.parametrize(("space", "first", "lr", "alpha"), PRINTED)
def test_the_papers_answers(space: SearchSpace, first: float, lr: float, alpha: float) -> None:
    def accuracy(slot: Trial) -> float:
        if slot.round.number == 0:
            return 50.0 - abs(slot.lr - first)
        return 70.0 - abs(slot.lr - lr) - 0.1 * abs(math.log2(slot.alpha / alpha))

    advice, _, trained = run(paper, space, of(accuracy))
    assert advice.answer is not None
    assert (advice.answer.lr, advice.answer.alpha) == (lr, alpha)
    assert sum(trial.slot.fraction for trial in trained) == pytest.approx(11)


def test_alpha_round_is_at_the_best_lr_and_begins_with_the_largest() -> None:
    outcomes: dict[Trial, Result] = {}
    for _ in range(2):
        for trial in paper(PAPER, outcomes).train:
            outcomes[trial] = Result(accuracy=60 - abs(trial.slot.lr - 0.8))
    advice = paper(PAPER, outcomes)
    assert [(t.slot.lr, t.slot.alpha, t.slot.fraction) for t in advice.train] == [(0.8, 16.0, 1.0)]
    outcomes[advice.train[0]] = Result(accuracy=60.0)
    assert [t.slot.alpha for t in paper(PAPER, outcomes).train] == [1.0, 2.0, 4.0, 8.0]


def test_ties_go_to_the_lower_lr_and_the_smaller_alpha() -> None:
    advice, _, _ = run(paper, PAPER, of(lambda slot: 70.0))
    assert advice.answer is not None
    assert (advice.answer.lr, advice.answer.alpha) == (0.8, 0.5)  # the first training of all


def test_a_short_training_may_win() -> None:
    """Line 6 of Algorithm 4 compares over all rounds."""
    advice, _, trained = run(paper, PAPER, of(lambda s: 80.0 if s.round.number == 0 else 70.0))
    assert advice.answer is not None
    assert advice.answer.lr == 0.8
    assert {t.slot.lr for t in trained if t.slot.round.number == 2} == {0.8}


def test_three_rounds() -> None:
    space = SearchSpace(fractions=(0.1, 0.3, 1.0), splits=3, alphas=(1.0, 2.0))
    advice, _, trained = run(paper, space, of(lambda slot: -slot.lr + 100 * slot.round.number))
    assert [len([t for t in trained if t.slot.round.number == r]) for r in range(4)] == [3, 3, 3, 1]
    assert space.cost == pytest.approx(3 * 1.4 + 1)
    assert advice.answer is not None
    assert advice.answer.lr == 0.2


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_a_training_without_a_number_closes_its_slot(plan: Plan, bad: float) -> None:
    """Large learning rates diverge: the search goes on below them."""
    advice, _, trained = run(plan, PAPER, of(lambda s: bad if s.lr > 1 else 60 + s.lr))
    assert advice.answer is not None
    assert advice.answer.lr == 0.8
    assert len(trained) == len(set(trained))


@pytest.mark.parametrize("plan", PLANS)
def test_when_a_whole_round_fails_the_next_one_is_below_it(plan: Plan) -> None:
    advice, _, trained = run(
        plan, PAPER, of(lambda s: math.nan if s.round.number == 0 else 50 + s.lr)
    )
    assert {t.slot.lr for t in trained if t.slot.round.number == 1} <= {0.2, 0.35, 0.5, 0.65, 0.8}
    assert advice.answer is not None
    assert advice.answer.lr == 0.8


@pytest.mark.parametrize("plan", PLANS)
def test_when_everything_fails_there_is_no_answer(plan: Plan) -> None:
    advice, _, trained = run(plan, PAPER, of(lambda s: math.nan))
    assert advice.answer is None
    assert len(trained) == 15


# -- seeds -----------------------------------------------------------------------------------------


def test_the_mean_over_seeds_decides() -> None:
    space = SearchSpace(seeds=2)
    assert space.trainings == 30
    assert space.cost == 22

    def found(trial: Trial) -> Result:
        if trial.slot.lr == 0.8:
            return Result(accuracy=[90.0, 50.0][trial.seed])  # the best single training, mean 70
        return Result(accuracy=71.0 if trial.slot.lr == 1.4 else 60.0)

    advice, _, trained = run(paper, space, found)
    assert len(trained) == 30
    assert advice.answer is not None
    assert (advice.answer.lr, advice.answer.accuracy) == (1.4, 71.0)


def test_one_failed_seed_closes_the_slot() -> None:
    def found(trial: Trial) -> Result:
        bad = trial.slot.lr == 0.8 and trial.seed == 1
        return Result(accuracy=math.nan if bad else 90.0 if trial.slot.lr == 0.8 else 60.0)

    advice, _, _ = run(paper, SearchSpace(seeds=2), found)
    assert advice.answer is not None
    assert advice.answer.lr != 0.8


# -- free slots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [paper, unimodal])
def test_caps_that_were_never_met_are_free(plan: Plan) -> None:
    """g/√C reaches 1.5 when it is let: alphas 2, 4, 8 and 16 are one training."""

    def found(trial: Trial) -> Result:
        alpha = trial.slot.alpha
        return Result(accuracy=70.0 + min(alpha, 1.5), largest_scale=min(1.5, 1.1 * alpha))

    advice, outcomes, trained = run(plan, PAPER, found)
    in_alpha_round = [t.slot.alpha for t in trained if t.slot.round.number == 2]
    assert in_alpha_round == [16.0, 1.0]
    for trial, outcome in outcomes.items():
        assert outcome == found(trial)
    assert advice.answer is not None
    assert advice.answer.alpha == 2.0  # the smallest of equals


def test_a_cap_that_was_met_is_not_free() -> None:
    _, _, trained = run(paper, PAPER, lambda t: Result(accuracy=70.0, largest_scale=t.slot.alpha))
    assert len(trained) == 15


def test_unknown_scales_are_trained() -> None:
    _, _, trained = run(paper, PAPER, lambda t: Result(accuracy=70.0))
    assert len(trained) == 15


def test_when_the_smallest_cap_was_never_met_the_alpha_round_is_free() -> None:
    _, outcomes, trained = run(
        paper, PAPER, lambda t: Result(accuracy=t.slot.lr, largest_scale=0.4)
    )
    assert len(trained) == 10
    assert len(outcomes) == 15


def test_each_seed_has_its_own_free_slots() -> None:
    def found(trial: Trial) -> Result:
        limit = [1.5, 3.0][trial.seed]
        return Result(accuracy=70.0, largest_scale=min(limit, trial.slot.alpha))

    _, _, trained = run(paper, SearchSpace(seeds=2), found)
    in_alpha_round = sorted((t.seed, t.slot.alpha) for t in trained if t.slot.round.number == 2)
    assert in_alpha_round == [(0, 1.0), (0, 16.0), (1, 1.0), (1, 2.0), (1, 16.0)]


def test_a_grid_point_is_never_trained_twice() -> None:
    """Two rounds of equal length share the upper end of the second."""
    space = SearchSpace(fractions=(1.0, 1.0))
    _, outcomes, trained = run(paper, space, of(lambda s: -s.lr))
    assert len(outcomes) == 15
    assert len(trained) == 14


# -- for any accuracy ------------------------------------------------------------------------------


@st.composite
def landscapes(draw: st.DrawFn) -> tuple[SearchSpace, Found, float]:
    """Unimodal in lr, the short optimum not below the long one; with the long one."""
    low = draw(st.floats(0.01, 1.0))
    high = low * draw(st.floats(1.5, 50.0))
    space = SearchSpace(
        lr_min=low,
        lr_max=high,
        splits=draw(st.integers(2, 8)),
        alphas=tuple(2.0**k for k in range(-1, draw(st.integers(0, 4)))),
    )
    long = draw(st.floats(low, high))
    short = draw(st.floats(long, high))
    left, right = draw(st.floats(1.0, 50.0)), draw(st.floats(1.0, 50.0))
    curved = draw(st.booleans())

    def accuracy(slot: Trial) -> float:
        peak = short if slot.fraction < 1 else long
        far = abs(slot.lr - peak) / (high - low)
        drop = (left if slot.lr < peak else right) * (far * far if curved else far)
        return 70.0 - drop - (20.0 if slot.fraction < 1 else 0.0)

    return space, of(accuracy), long


@given(landscapes())
@settings(max_examples=300, deadline=None)
def test_lr_is_within_one_grid_step_of_the_best(case: tuple[SearchSpace, Found, float]) -> None:
    """Of the last round's grid; or of the first, whose winner may lie just below the optimum."""
    space, found, long = case
    for plan in (paper, uncapped, lambda s, o: unimodal(s, o, margin=0.0)):
        advice, _, trained = run(plan, space, found)
        assert advice.answer is not None
        steps = [slots[1].lr - slots[0].lr for slots in list(advice.rounds.values())[:2]]
        assert abs(advice.answer.lr - long) <= max(steps) * (1 + 1e-6)
        assert len(trained) <= space.trainings
        assert sum(t.slot.fraction for t in trained) <= space.cost + 1e-9


@given(
    st.dictionaries(st.integers(0, 14), st.floats(0, 100) | st.just(math.nan), max_size=15),
    st.integers(1, 3),
    st.sampled_from(EVERY),
)
@settings(max_examples=200, deadline=None)
def test_never_more_trainings_than_announced(
    values: dict[int, float], seeds: int, plan: Plan
) -> None:
    space = SearchSpace(seeds=seeds)

    def found(trial: Trial) -> Result:
        return Result(accuracy=values.get(5 * trial.slot.round.number + trial.slot.index % 5, 50.0))

    _, _, trained = run(plan, space, found)
    assert len(trained) == len(set(trained)) <= plan_of(plan.__name__).trainings(space)


@given(st.data(), st.sampled_from(EVERY), st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_any_prefix_of_finished_trials_gives_the_same_search(
    data: st.DataObject, plan: Plan, seeds: int
) -> None:
    """Trials may end in any order, and a new driver knows nothing but them."""
    space = SearchSpace(seeds=seeds)
    value = data.draw(st.dictionaries(st.integers(0, 99), st.floats(0, 100), min_size=1))

    def found(trial: Trial) -> Result:
        key = (31 * trial.slot.round.number + 7 * trial.slot.index + trial.seed) % 100
        return Result(accuracy=value.get(key, 50.0), largest_scale=min(trial.slot.alpha, 3.0))

    in_order, whole, _ = run(plan, space, found)
    outcomes: dict[Trial, Result] = {}
    while not (advice := plan(space, dict(outcomes))).over:
        for trial, source in advice.free.items():
            outcomes[trial] = outcomes[source]
        if advice.train:
            trial = data.draw(st.sampled_from(advice.train))
            rest = set(advice.train) - {trial}
            outcomes[trial] = found(trial)
            after = plan(space, dict(outcomes))
            assert rest <= set(after.train) | set(after.free)  # what is under way stays wanted
    assert outcomes == whole
    assert advice.answer == in_order.answer


# -- the faster plan -------------------------------------------------------------------------------


def test_a_cap_that_is_hardly_met_needs_no_training_of_its_own() -> None:
    """g/√C reaches 1.2 when it is let: alpha 1 cuts off little, alpha 0.5 is trained already."""

    def found(trial: Trial) -> Result:
        return Result(accuracy=70.0 - trial.slot.lr, largest_scale=min(1.2, trial.slot.alpha))

    _, _, trained = run(unimodal, PAPER, found)
    assert [t.slot.alpha for t in trained if t.slot.round.number == 2] == [16.0]
    _, _, trained = run(paper, PAPER, found)
    assert [t.slot.alpha for t in trained if t.slot.round.number == 2] == [16.0, 1.0]


def test_unimodality_rules_out_what_lies_beyond_a_fall() -> None:
    assert cannot_win({1: 60.0, 2: 50.0}, 5, margin=1.0) == {3, 4}
    assert cannot_win({2: 50.0, 3: 60.0}, 5, margin=1.0) == {0, 1}
    assert cannot_win({1: 50.0, 2: 60.0, 3: 50.0}, 5, margin=1.0) == {0, 4}
    assert cannot_win({1: 60.0, 2: 59.5}, 5, margin=1.0) == set()  # noise may explain it


def test_unimodal_takes_fewer_trainings() -> None:
    def accuracy(slot: Trial) -> float:
        return 70.0 - 5 * math.log(slot.lr / 0.8) ** 2 - 2 * math.log(slot.alpha / 0.5)

    full, _, all_trained = run(paper, PAPER, of(accuracy))
    fast, _, trained = run(unimodal, PAPER, of(accuracy))
    assert full.answer == fast.answer
    assert {t.slot for t in trained} < {t.slot for t in all_trained}
    assert sum(t.slot.fraction for t in trained) == pytest.approx(7)  # of 11: 1, 4 of 5, 2 of 5


def test_uncapped_tunes_lr_at_the_largest_alpha_and_takes_that_run_for_it() -> None:
    def found(trial: Trial) -> Result:
        accuracy = 70.0 - abs(trial.lr - 0.8) - abs(math.log2(trial.alpha))
        return Result(accuracy=accuracy, largest_scale=min(3.0, trial.alpha))

    advice, outcomes, trained = run(uncapped, PAPER, found)
    assert advice.answer is not None
    assert (advice.answer.lr, advice.answer.alpha) == (0.8, 1.0)
    assert {t.alpha for t in trained if t.round.kind == "lr"} == {16.0}
    # g/√C never passes 3: alphas of 4 and 8 are the run at 16, without a training
    assert [t.alpha for t in trained if t.round.kind == "alpha"] == [0.5, 1.0, 2.0]
    assert len(outcomes) == PAPER.trainings


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr_min": 3.2, "lr_max": 0.2}, r"lr_max must be greater than lr_min but got \[3.2, 0.2"),
        ({"lr_min": 1.0, "lr_max": 1.0}, "lr_max must be greater"),
        ({"lr_min": 0.0}, "lr_min must be > 0 but got 0"),
        ({"lr_max": math.inf}, "finite"),
        ({"lr_min": math.nan}, "finite"),
        ({"splits": 1}, r"splits \(K\) must be at least 2 but got 1"),
        ({"fractions": ()}, "fractions must lie in"),
        ({"fractions": (0.0, 1.0)}, "fractions must lie in"),
        ({"fractions": (1.0, 0.2)}, "fractions must not decrease but got 1 0.2"),
        ({"alphas": ()}, "alphas must not be empty"),
        ({"alphas": (1.0, 0.5)}, "alphas must increase but got 1 0.5"),
        ({"alphas": (1.0, 1.0)}, "alphas must increase"),
        ({"alphas": (-1.0, 1.0)}, "alphas must be > 0"),
        ({"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_a_space_that_cannot_be_searched(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchSpace(**changes)  # type: ignore[arg-type]


def test_uniform_split() -> None:
    assert uniform_split(0.2, 3.2, 5, first=True) == (0.8, 1.4, 2.0, 2.6, 3.2)
    assert uniform_split(0.2, 2.6, 5, first=False) == (0.2, 0.8, 1.4, 2.0, 2.6)
