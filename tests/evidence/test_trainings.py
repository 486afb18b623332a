"""Experiments as functions that are begun again, and searches as part of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest

from fixnorm.commands.configured import configured
from fixnorm.evidence.experiments import EXPERIMENTS
from fixnorm.evidence.grids import under_caps
from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.record import record_of, write_landscapes
from fixnorm.evidence.scales import SCALES, SMALL
from fixnorm.evidence.searches import FRESH, bayesian, planned
from fixnorm.evidence.trainings import IMAGINED, Found, Training, Trainings
from fixnorm.tuning.plan import PAPER
from helpers.worlds import WORKLOAD, World, found, hill


def seeds(count: int) -> list[Training]:
    return [WORKLOAD.training("fixnorm", seed=seed) for seed in range(count)]


# -- trainings -------------------------------------------------------------------------------------


def test_an_experiment_is_begun_again_until_all_is_there() -> None:
    begun = []

    def experiment(trainings: Trainings) -> float:
        begun.append(1)
        first, second = trainings.all(seeds(2))
        third = trainings.one(WORKLOAD.training("wn-fc", seed=int(first.value)))
        return second.value + third.value

    world = World(lambda training: found(3.0 + training.recipe.seed))

    assert world.run(experiment) == 4.0 + 6.0  # seeds 0, 1 → 3, 4; then seed 3 → 6
    assert [t.recipe.seed for t in world.done] == [0, 1, 3]
    assert len(begun) == 4  # once for each training, and once with all of them


def test_parts_that_do_not_depend_on_one_another_are_asked_for_together() -> None:
    def part(trainings: Trainings, method: Any) -> float:
        first = trainings.one(WORKLOAD.training(method, seed=0))
        return trainings.one(WORKLOAD.training(method, seed=1)).value + first.value

    def experiment(trainings: Trainings) -> list[float]:
        return trainings.each([partial(part, trainings, method) for method in ("wn-fc", "fixnorm")])

    world = World(lambda training: found(1.0))

    assert world.run(experiment) == [2.0, 2.0]
    assert world.most_at_once == 2
    assert len(world.done) == 4


def test_an_experiment_that_needs_all_says_which_training_diverged() -> None:
    world = World(lambda training: found(None if training.recipe.seed == 1 else 3.0))

    with pytest.raises(ValueError, match=r"digits-fixnorm-lr0\.8-seed1-\w+ diverged .* 0\.8$"):
        world.run(lambda trainings: trainings.sound(seeds(2)))


def test_equal_trainings_have_one_key_and_others_another() -> None:
    same = WORKLOAD.training("fixnorm", seed=0, lr=0.8)
    assert same.key == WORKLOAD.training("fixnorm", seed=0).key  # 0.8 is the recipe's own
    others = [
        WORKLOAD.training("fixnorm", seed=1),
        WORKLOAD.training("fixnorm", seed=0, lr=0.80001),
        WORKLOAD.training("fixnorm", seed=0, fraction=0.2),
        WORKLOAD.training("wn-fc", seed=0),
    ]
    assert len({same.key, *(other.key for other in others)}) == 5


@pytest.mark.slow
@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_the_command_of_every_training_gives_its_very_recipe(name: str, scale: Any) -> None:
    trainings = Trainings(lambda _: IMAGINED, dry=True)
    assert trainings.attempt(EXPERIMENTS[name].at(SCALES[scale])) is not None

    for training in trainings.used:
        assert configured(training.base, training.method, training.settings()) == training.recipe


def test_a_dry_run_counts_the_most_that_searches_may_take() -> None:
    trainings = Trainings(lambda _: IMAGINED, dry=True)
    trainings.attempt(lambda trainings: {"found": planned(trainings, WORKLOAD, seed=0)})

    assert len(trainings.used) == 15  # 5 short, 5 in full, 5 alphas
    # The digits train for 15 epochs, of which a fifth is 3.
    assert sum(training.cost for training in trainings.used) == pytest.approx(11)


# -- searches --------------------------------------------------------------------------------------


def test_algorithm_4_finds_the_top_and_takes_what_is_free() -> None:
    world = World(hill)

    searched = world.run(lambda trainings: planned(trainings, WORKLOAD, seed=5))

    assert (searched.lr, searched.second) == (0.8, 2.0)
    assert searched.winner == {"lr": 0.8, "alpha": 2.0}
    assert [s.second for s in searched.tried if s.free] == [4.0, 8.0]
    assert searched.cost == pytest.approx(1 + 5 + 3)  # alphas 1, 2 and 16
    assert {training.recipe.seed for training in world.done} == {5}
    assert len(world.done) == 13


def test_a_training_that_diverged_never_wins() -> None:
    def value(training: Training) -> Found:
        return found(None) if training.recipe.lr > 0.8 else hill(training)

    searched = World(value).run(lambda trainings: planned(trainings, WORKLOAD, seed=0))

    assert searched.lr == 0.8
    assert {step.score for step in searched.tried if step.lr > 0.8} == {None}


def test_every_training_diverged_is_said() -> None:
    with pytest.raises(ValueError, match="every training of digits diverged"):
        World(lambda _: found(None)).run(lambda trainings: planned(trainings, WORKLOAD, seed=0))


def decayed(training: Training) -> Found:
    recipe = training.recipe
    return found(80 - abs(math.log(recipe.lr / 0.5)) - abs(math.log10(recipe.weight_decay / 1e-3)))


def test_bayesian_optimisation_asks_what_optuna_asks() -> None:
    budget = 13  # beyond Optuna's ten random points, so that the Gaussian process has its say
    world = World(decayed)
    searched = world.run(lambda trainings: bayesian(trainings, WORKLOAD, seed=3, budget=budget))

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.GPSampler(seed=3))
    ranges: Any = {
        "lr": optuna.distributions.FloatDistribution(0.1, 3.2, log=True),
        "weight_decay": optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True),
    }
    asked = []
    for _ in range(budget):
        trial = study.ask(ranges)
        lr, decay = (float(f"{trial.params[name]:.4g}") for name in ranges)
        asked.append((lr, decay))
        training = WORKLOAD.training("weight-decay", seed=3, lr=lr, weight_decay=decay)
        study.tell(trial, decayed(training).value)

    assert [(step.lr, step.second) for step in searched.tried] == asked
    assert searched.cost == budget
    assert searched.score == max(step.score or 0 for step in searched.tried)


def test_all_trainings_of_a_search_are_counted_however_often_it_was_begun_again() -> None:
    world = World(decayed)
    world.run(lambda trainings: bayesian(trainings, WORKLOAD, seed=0, budget=12))

    assert world.used == set(world.done)
    assert len(world.used) == 12


def test_a_training_that_is_asked_for_twice_answers_twice() -> None:
    (training,) = seeds(1)
    world = World(lambda _: found(7.0))

    assert world.run(lambda trainings: [f.value for f in trainings.all([training, training])]) == [
        7.0,
        7.0,
    ]


def test_a_search_that_was_killed_asks_for_the_same_again() -> None:
    whole, broken = World(decayed), World(decayed)
    search = partial(bayesian, workload=WORKLOAD, seed=1, budget=12)
    expected = whole.run(search)
    broken.done = dict(list(whole.done.items())[:11])

    assert broken.run(search) == expected  # without what was worked out before
    assert broken.done.keys() == whole.done.keys()


def test_the_first_trainings_of_a_longer_search_are_those_of_a_shorter_one() -> None:
    world = World(decayed)
    world.run(lambda trainings: bayesian(trainings, WORKLOAD, seed=0, budget=12))
    shorter = World(decayed)
    shorter.run(lambda trainings: bayesian(trainings, WORKLOAD, seed=0, budget=11))

    assert list(world.done)[:11] == list(shorter.done)


def test_a_search_may_begin_with_numbers_that_are_known() -> None:
    begin = partial(bayesian, workload=WORKLOAD, seed=0)
    points = [
        [(step.lr, step.second) for step in World(decayed).run(search).tried]
        for search in (partial(begin, budget=4), partial(begin, budget=5, first=(0.4, 1e-5)))
    ]

    assert points[1] == [(0.4, 1e-5), *points[0]]


def test_a_dense_rival_is_searched_for_and_all_are_trained_by_fresh_seeds() -> None:
    def value(training: Training) -> Found:
        recipe = training.recipe
        score = 90.0 if recipe.alpha is not None else decayed(training).value
        return replace(found(score), mcbr_val=-0.5)

    world = World(value, at_a_time=100)
    scale = replace(SMALL, table3=(WORKLOAD,), table3_budget=4, seeds=2)
    runs = world.run(EXPERIMENTS["table3"].at(scale)).runs

    sides = [(run.side, run.seed) for run in runs]
    names = ("weight decay", "weight decay, tuned", "FixNorm")
    assert sides == [(name, seed) for name in names for seed in (FRESH, FRESH + 1)]
    searched = [training for training in world.done if training.recipe.seed == 0]
    assert len(searched) == 4
    best = max(searched, key=lambda training: decayed(training).value).recipe
    tuned = {(run.lr, run.weight_decay) for run in runs if run.searched}
    assert tuned == {(best.lr, best.weight_decay)}


# -- recordings ------------------------------------------------------------------------------------


def test_recordings_can_be_replayed_and_need_no_training_that_is_known(tmp_path: Path) -> None:
    scale = replace(SMALL, fig4=(WORKLOAD,), fig4_anew=())
    world = World(lambda t: hill(t) if t.recipe.alpha is not None else decayed(t), at_a_time=1000)

    outcome = world.run(EXPERIMENTS["landscapes"].at(scale))
    record = record_of("landscapes", "small", outcome, world.done)
    files = write_landscapes(record, tmp_path)

    alpha, decay = (Landscape.read(file) for file in files)
    assert [str(f.relative_to(tmp_path / "landscapes")) for f in files] == [
        "fixnorm/digits.json",
        "weight-decay/digits.json",
    ]
    assert (len(alpha.lrs), len(alpha.levels), len(alpha.seeds)) == (8, 6, 2)
    assert (len(decay.lrs), len(decay.levels), len(decay.seeds)) == (8, 6, 2)
    assert alpha.fractions == (0.2, 1.0)
    assert alpha.best.lr == 0.8
    # Of alphas 0.5, 1, 2, 16 each lr is trained; 4 and 8 are the training of 16.
    assert len(world.done) == 2 * 8 * (1 + 4) + 2 * 48
    points = outcome.landscapes[0].points
    assert {p.alpha for p in points if p.free} == {4.0, 8.0}

    figure = world.run(EXPERIMENTS["fig4"].at(scale)).content()
    assert len(figure["landscapes"][0]["points"]) == 2 * 8 * 7
    assert "curve" not in figure["landscapes"][0]["points"][0]


def test_a_training_that_diverged_is_that_of_no_smaller_alpha() -> None:
    def train(alpha: float) -> Training:
        return WORKLOAD.training("fixnorm", seed=0, alpha=alpha)

    for score, asked in ((70.0, [16.0, 1.0]), (None, [16.0, 1.0, 4.0])):
        world = World(lambda _, score=score: found(score, 3.0), at_a_time=10)
        capped = world.run(lambda trainings: under_caps(trainings, train, (1.0, 4.0, 16.0)))
        assert [training.recipe.alpha for training in world.done] == asked
        assert [alpha for alpha, one in capped.items() if one.free] == ([4.0] if score else [])


def test_small_scale_has_the_data_that_it_names() -> None:
    settings = [SMALL.fig1, SMALL.fig2, *SMALL.fig4, *SMALL.table1, *SMALL.table2, SMALL.peers]
    assert {setting.data for setting in settings} == {"cifar10", "tiny_imagenet_100"}
    assert SMALL.fig4[0].space == PAPER
