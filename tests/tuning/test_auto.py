"""The plan without a search for lr: one trunk, and alphas that branch from it, downwards."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import fixnorm
from fixnorm import recipes
from fixnorm.tuning.auto import auto
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.plans import DEFAULT, PLANS
from fixnorm.tuning.run import TrialRuns
from fixnorm.tuning.search import Ledger, Search, run_here
from fixnorm.tuning.stored import read_trial
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import AUTO, Result, Round, Trial
from fixnorm.tuning.view import SearchView

SPACE = SearchSpace(alphas=(0.5, 1.0, 2.0, 4.0, 8.0))


def trained(
    accuracies: dict[float, float],
    *,
    reaches: float = math.inf,
    seeds: int = 1,
    margin: float = 1.0,
) -> tuple[list[float], float | None]:
    """The alphas that the plan trains, in its order, and the alpha that it answers.

    g/√C reaches so far where it is let.
    """
    space = SearchSpace(alphas=tuple(sorted(accuracies)))
    strategy = PlanStrategy(space=space, plan="auto", margin=margin)
    asked: list[float] = []

    def train(trial: Trial) -> Result:
        assert trial.alpha is not None
        assert trial.lr == AUTO
        asked.append(trial.alpha)
        accuracy = accuracies[trial.alpha]
        if math.isnan(accuracy):
            return Result(state="diverged")
        return Result(accuracy=accuracy, largest_scale=min(reaches, 1.1 * trial.alpha))

    best = run_here(Search(strategy, Ledger(strategy.settings())), train)
    return asked, None if best is None else best.alpha


NAN = math.nan
STEPS = [
    # accuracy by alpha, what g reaches, what is trained, the answer
    ({16.0: 70.0}, math.inf, [16.0], 16.0),
    ({1.0: 70.0, 4.0: 71.0, 16.0: 70.0}, math.inf, [16.0, 4.0, 1.0], 4.0),
    ({1.0: 90.0, 4.0: 68.0, 16.0: 70.0}, math.inf, [16.0, 4.0], 16.0),  # fell by 2: it ends
    ({1.0: 90.0, 4.0: 69.0, 16.0: 70.0}, math.inf, [16.0, 4.0, 1.0], 1.0),  # by the margin: not yet
    ({1.0: 70.1, 2.0: 70.2, 4.0: 71.0, 16.0: 71.9}, math.inf, [16.0, 4.0, 2.0], 16.0),  # in all
    ({1.0: 70.0, 4.0: 70.0, 16.0: 70.0}, math.inf, [16.0, 4.0, 1.0], 1.0),  # the smallest of equals
    ({1.0: 60.0, 4.0: 70.0, 16.0: 70.0}, 3.0, [16.0, 1.0], 4.0),  # alpha 4 is free
    ({1.0: 70.0, 4.0: 70.0, 16.0: 70.0}, 0.5, [16.0], 1.0),  # all are
    ({1.0: 60.0, 4.0: 61.0, 16.0: NAN}, math.inf, [16.0, 4.0, 1.0], 4.0),  # the trunk diverged
    ({1.0: 60.0, 4.0: NAN, 16.0: 61.0}, math.inf, [16.0, 4.0], 16.0),
    ({1.0: NAN, 4.0: NAN, 16.0: NAN}, math.inf, [16.0, 4.0, 1.0], None),
]


@pytest.mark.parametrize(("accuracies", "reaches", "alphas", "answer"), STEPS)
def test_downwards_until_accuracy_falls(
    accuracies: dict[float, float], reaches: float, alphas: list[float], answer: float | None
) -> None:
    assert trained(accuracies, reaches=reaches) == (alphas, answer)


def test_every_seed_has_its_own_trunk_and_its_own_free_alphas() -> None:
    strategy = PlanStrategy(space=dataclasses.replace(SPACE, seeds=2), plan="auto")
    assert (strategy.trainings, strategy.cost) == (10, 10.0)
    asked: list[tuple[str, str | None]] = []

    def train(trial: Trial) -> Result:
        asked.append((trial.key, trial.trunk))
        share = 1.0 if trial.trunk is None else 0.25
        return Result(accuracy=70.0, largest_scale=[1.5, 3.0][trial.seed], share=share)

    ledger = Ledger(strategy.settings())
    run_here(Search(strategy, ledger), train)
    assert asked == [
        ("trunk-4-seed0", None),
        ("trunk-4-seed1", None),
        ("alpha-2-seed1", "trunk-4-seed1"),  # alpha 2: seed 0 never met it
        ("alpha-1-seed0", "trunk-4-seed0"),
        ("alpha-1-seed1", "trunk-4-seed1"),
        ("alpha-0-seed0", "trunk-4-seed0"),
        ("alpha-0-seed1", "trunk-4-seed1"),
    ]
    assert ledger.record().cost == 2 + 5 * 0.25  # of at most 10
    free = {trial.key: trial.source for trial in ledger.record().trials if trial.state == "free"}
    assert set(free.values()) == {"trunk-4-seed0", "trunk-4-seed1"}


# -- for any accuracy ------------------------------------------------------------------------------

CURVES = st.lists(st.floats(0, 100) | st.just(NAN), min_size=1, max_size=8)


@given(CURVES, st.floats(0.1, 40.0), st.floats(0, 30))
@settings(max_examples=300, deadline=None)
def test_what_holds_for_any_accuracy(values: list[float], reaches: float, margin: float) -> None:
    """What it leaves out is free, or lies below an alpha that fell too far."""
    alphas = [2.0 ** (k - 2) for k in range(len(values))]
    # Caps that are never met give one and the same training.
    met = [k for k in range(len(values)) if alphas[k] <= reaches]
    curve = {a: values[-1] if k not in met else values[k] for k, a in enumerate(alphas)}
    asked, answer = trained(curve, reaches=reaches, margin=margin)
    assert asked == sorted(asked, reverse=True)
    assert asked[0] == alphas[-1]
    if not math.isnan(values[-1]):  # of a trunk that diverged nobody knows what its g met
        assert all(alpha <= reaches * 1.01 for alpha in asked[1:])
    tried = [a for a in alphas if a >= asked[-1]]
    known = [curve[a] for a in tried if not math.isnan(curve[a])]
    assert (answer is None) == (not known)
    if answer is not None:
        assert curve[answer] == max(known)


@given(CURVES, st.floats(0.1, 40.0))
@settings(max_examples=200, deadline=None)
def test_with_branches_that_are_exact_it_answers_as_if_all_were_trained(
    values: list[float], reaches: float
) -> None:
    """The trunk's own word on what is free, and a margin that stops nothing."""
    alphas = [2.0 ** (k - 2) for k in range(len(values))]
    curve = {a: values[-1] if a > reaches else values[k] for k, a in enumerate(alphas)}
    space, results = SearchSpace(alphas=tuple(alphas)), {}
    while not (advice := auto(space, results, margin=math.inf)).over:
        for trial, source in advice.free.items():
            results[trial] = results[source]
        for trial in advice.train:
            bad = math.isnan(curve[trial.alpha])
            accuracy, scale = (None, None) if bad else (curve[trial.alpha], reaches)
            results[trial] = Result(accuracy=accuracy, largest_scale=scale)
    from_zero = {a: value for a, value in curve.items() if not math.isnan(value)}
    best = min((a for a in from_zero if from_zero[a] == max(from_zero.values())), default=None)
    assert (advice.answer.alpha if advice.answer else None) == best


# -- what it is announced with, and what is stored -------------------------------------------------


def test_outline_and_bounds() -> None:
    strategy = PlanStrategy(space=SearchSpace(seeds=3), plan="auto", margin=0.5)
    assert (strategy.trainings, strategy.cost) == (18, 18.0)
    trunk, alphas, end = strategy.outline()
    assert trunk == "trunk: alpha 16 × 3 seeds, lr auto, 1 T_max"
    assert alphas.startswith("alpha round: 8 4 2 1 0.5 × 3 seeds, each from where g meets its cap")
    assert end.startswith("ends where accuracy is more than 0.5 below the best; a branch costs")
    assert strategy.settings()["space"] == {"alphas": PAPER.alphas, "seeds": 3}


@pytest.mark.parametrize(
    "changes", [{"lr_min": 0.1}, {"lr_max": 5.0}, {"splits": 3}, {"fractions": (1.0,)}]
)
def test_what_the_plan_has_no_use_for_is_refused(changes: dict[str, object]) -> None:
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name} means nothing to plan auto, which uses"):
        PlanStrategy(space=SearchSpace(**changes), plan="auto")  # type: ignore[arg-type]


def test_the_default_is_one_of_the_plans() -> None:
    assert DEFAULT in PLANS
    assert PlanStrategy().plan == DEFAULT


def told(trial: Trial) -> Result:
    if trial.trunk is None:
        return Result(accuracy=70.0, largest_scale=5.0)
    return Result(accuracy=70.0 + (trial.alpha == 2.0), largest_scale=5.0, share=0.4)


def test_a_study_keeps_branches_and_what_they_cost() -> None:
    strategy = PlanStrategy(space=SPACE, plan="auto")
    study = optuna.create_study(direction="maximize")

    def kept() -> Study:
        return Study.around(
            study, settings=strategy.settings(), distributions=strategy.distributions()
        )

    first = kept()
    assert run_here(Search(strategy, first), told) == run_here(
        Search(strategy, Ledger(strategy.settings())), told
    )
    again = kept()  # read back from what Optuna has
    assert again.results == first.results
    assert again.record().cost == first.record().cost == 1 + 4 * 0.4
    assert {t.params["lr"] for t in study.trials} == {"auto"}


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("branch_of", "has branch_of None where the plan has trunk-4: the study was changed"),
        ("share", None),  # one of an older version: all of it
    ],
)
def test_a_study_without_them(lost: str, message: str | None) -> None:
    strategy = PlanStrategy(space=SPACE, plan="auto")
    study = optuna.create_study(direction="maximize")
    around: Callable[[optuna.Study], Study] = lambda study: Study.around(  # noqa: E731
        study, settings=strategy.settings(), distributions=strategy.distributions()
    )
    run_here(Search(strategy, around(study)), told)
    other = optuna.create_study(direction="maximize")
    for name, value in study.user_attrs.items():
        other.set_user_attr(name, value)
    for trial in study.trials:
        trial.user_attrs["slot"].pop(lost, None)
        trial.user_attrs["ended"].pop(lost, None)
        other.add_trial(trial)
    if message is None:
        assert Search(strategy, around(other)).ledger.record().cost == 5.0
        return
    with pytest.raises(ValueError, match=message):
        Search(strategy, around(other))


def test_a_baseline_has_its_lr_in_numbers() -> None:
    study = optuna.create_study(direction="maximize")
    study.enqueue_trial({"lr": "auto", "weight_decay": 1e-4})
    trial = study.ask()
    trial.suggest_categorical("lr", ["auto"])
    trial.suggest_float("weight_decay", 1e-5, 1e-3)
    with pytest.raises(ValueError, match="trial 0, params: lr: should be a number beside weight_d"):
        read_trial(study.trials[0], None)


# -- the commands of its trainings -----------------------------------------------------------------


def runs_in(folder: Path) -> TrialRuns:
    return TrialRuns(
        recipe=recipes.get("digits"), settings=(), data=None, folder=folder, branches=SPACE.alphas
    )


def finished(runs: TrialRuns, trial: Trial, **changes: object) -> None:
    folder = runs.folder_of(trial)
    folder.mkdir(parents=True)
    content = {
        "metric": "accuracy", "accuracy": 70.0, "diverged": False, "epochs": 1, "seconds": 3.0,
        "largest_scale": 5.0, "recipe": runs.recipe_of(trial).to_dict(),
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(content | changes))


TRUNK = Trial(round=Round("trunk"), index=4, lr=AUTO, alpha=8.0)
BRANCH = Trial(round=Round("alpha", 1), index=2, lr=AUTO, alpha=2.0, branch_of="trunk-4", seed=1)


def test_the_trunk_keeps_branches_and_the_others_start_from_it(tmp_path: Path) -> None:
    runs = runs_in(tmp_path)
    words = runs.command(TRUNK)
    assert words[words.index("--branches") + 1] == "4.0,2.0,1.0,0.5"
    assert "lr=auto" in words
    assert "--from" not in words
    assert "--from" not in runs.command(BRANCH)  # there is no trunk: from zero
    finished(runs, TRUNK.seeded(1))
    words = runs.command(BRANCH)
    assert words[words.index("--from") + 1] == str(tmp_path / "trunk-4-seed1")
    assert "--branches" not in words
    assert runs.command_in_full(BRANCH) == (
        "fixnorm train digits --method fixnorm --set lr=auto --set alpha=2.0"
    )


def test_a_trunk_that_is_damaged_is_nothing_to_start_from(tmp_path: Path) -> None:
    runs = runs_in(tmp_path)
    finished(runs, TRUNK.seeded(1), epochs=-1)
    assert "--from" not in runs.command(BRANCH)


@pytest.mark.parametrize(
    ("said", "share"), [({}, 1.0), ({"share": 0.43}, 0.43), ({"share": 0.0}, 0.0)]
)
def test_the_share_that_a_run_has_trained_is_its_cost(
    tmp_path: Path, said: dict[str, object], share: float
) -> None:
    runs = runs_in(tmp_path)
    finished(runs, BRANCH, **said)
    result = runs.ended(BRANCH, 0)
    assert isinstance(result, Result)
    assert dataclasses.replace(BRANCH, result=result).cost == share
    finished(runs, TRUNK, diverged=True, accuracy=None, **said)
    result = runs.ended(TRUNK, 1)
    assert isinstance(result, Result)
    assert (result.state, result.share) == ("diverged", share)


def test_the_view_counts_a_running_branch_from_where_it_left() -> None:
    strategy = PlanStrategy(space=SPACE, plan="auto")
    search = Search(strategy, Ledger(strategy.settings()))
    (trunk,) = search.ask()
    search.tell(trunk, Result(accuracy=70.0, largest_scale=20.0))
    (branch,) = search.ask()
    view = SearchView(search, title="search", workers=1)
    console = Console(file=io.StringIO(), width=300)
    for done in (0.0, 0.6, 0.8):  # it left at 0.6
        view.tick({branch: done})
    console.print(view.view())
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "80 % …" in shown
    assert "1.2 of at most 5 T_max" in shown


# -- around a function of one's own ----------------------------------------------------------------


def test_a_function_is_called_with_the_word(tmp_path: Path) -> None:
    seen: list[tuple[object, float, int]] = []

    def train(lr: object, alpha: float, steps: int) -> dict[str, float]:
        seen.append((lr, alpha, steps))
        return {"accuracy": 70 - abs(math.log2(alpha)), "largest_scale": min(3.0, alpha)}

    for _ in range(2):  # the second reads the answer
        found = fixnorm.tune(train, steps=100, plan="auto", out=tmp_path, progress=False)
        assert (found.lr, found.alpha, found.accuracy) == ("auto", 1.0, 70.0)
        # 4 and 8 are free by 16; the others are trained in full: a function has no branches.
        assert (found.trials, found.cost) == (4, 4.0)
        assert seen == [("auto", alpha, 100) for alpha in (16.0, 2.0, 1.0, 0.5)]
