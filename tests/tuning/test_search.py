"""One search: ask, tell, and an answer that is the same wherever it is shown."""

from __future__ import annotations

import io
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from rich.console import Console

from fixnorm import recipes
from fixnorm.report import write_report
from fixnorm.report.summary import answer
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.plans import PLANS
from fixnorm.tuning.run import RecipeSearch, TrialRuns, result
from fixnorm.tuning.search import Ledger, Search, run_here
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy, Strategy
from fixnorm.tuning.study import Study, read_studies
from fixnorm.tuning.trial import Lr, Result, Round, Trial, shown_lr
from fixnorm.tuning.view import SearchView, found

# lr round 1: 0.5 and 0.8, of which 0.8 wins; lr round 2: 0.2 and 0.8; alpha round at the best lr.
SPACE = SearchSpace(lr_min=0.2, lr_max=0.8, splits=2, fractions=(0.4, 1.0), alphas=(0.5, 2.0, 16.0))


def accuracy(trial: Trial) -> float:
    """The short training at lr 0.8 has 70, the full one at 0.2 only 64."""
    short = {0.5: 60.0, 0.8: 70.0}[trial.lr] if trial.fraction < 1 else 0.0
    full = {0.2: 65.0, 0.8: 68.0}.get(trial.lr, 0.0) + math.log2(trial.alpha or 1.0)
    return (short or full) + trial.seed


def told(trial: Trial) -> Result:
    assert trial.alpha is not None
    if trial.lr == 0.5:
        return Result(state="diverged", reason="too high")
    share = 1.0 if trial.trunk is None else 0.7
    return Result(accuracy=accuracy(trial), largest_scale=min(trial.alpha, 3.0), share=share)


def steps(search: Search, *, at_a_time: int) -> Iterator[None]:
    """Trials end in the order opposite to that in which they began."""
    while search.ask(at_a_time) or search.running:
        search.tell(trial := list(search.running.values())[-1], told(trial))
        yield


def on_terminal(search: Search) -> str:
    console = Console(file=io.StringIO(), width=300)
    console.print(SearchView(search, title="search", workers=1).view())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def on_page(page: Path) -> str:
    """The words of a page, without its markup."""
    return " ".join(re.sub(r"<[^>]*>", "", page.read_text()).split())


@pytest.fixture
def _nothing_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixnorm.report.write.png", lambda drawing: b"a picture")
    monkeypatch.setattr("fixnorm.report.html.svg", lambda panel, prefix: "<svg></svg>")


@pytest.mark.usefixtures("_nothing_rendered")
@pytest.mark.parametrize(
    ("plan", "seeds", "at_a_time"),
    [("paper", 1, 1), ("paper", 2, 2), ("unimodal", 2, 3), ("auto", 1, 1), ("auto", 2, 3)],
)
def test_terminal_json_and_page_have_one_answer_at_every_moment(
    tmp_path: Path, plan: str, seeds: int, at_a_time: int
) -> None:
    """For this search, after the third training, they had 64.0 and 70.0."""
    used = {name: getattr(SPACE, name) for name in PLANS[plan].uses}
    space = SearchSpace(**{**used, "seeds": seeds})
    runs = TrialRuns(
        recipe=recipes.get("digits"), settings=(), data=None, folder=tmp_path / f"fixnorm-{plan}"
    )
    storage = Storage.in_folder(tmp_path)
    of_runs = RecipeSearch(
        strategy=PlanStrategy(space=space, plan=plan), runs=runs, storage=storage
    )
    seen: list[tuple[Lr, float | None, float | None]] = []
    with of_runs.owned() as search:
        for _ in steps(search, at_a_time=at_a_time):
            seen.append(check(search, of_runs, tmp_path))
        seen.append(check(search, of_runs, tmp_path))
    if plan == "auto":  # alpha 2 branches; the fall from 4 to 1 ends the search
        assert seen[-1] == ("auto", 16.0, 4.0 + (seeds - 1) / 2)
    elif at_a_time == 1:
        assert seen[1:4] == [(0.8, 0.5, 70.0), (0.2, 0.5, 64.0), (0.8, 0.5, 67.0)]
        assert seen[-1] == (0.8, 16.0, 72.0)


@pytest.mark.parametrize(("images", "marked"), [(100, True), (10**6, False)])
def test_what_is_level_with_the_best_is_marked(images: int, marked: bool) -> None:
    """Alpha 4 and more are one training; 2 and 1 are two and five percent below it."""
    strategy = PlanStrategy(
        space=SearchSpace(alphas=(1.0, 2.0, 4.0, 8.0, 16.0)), plan="auto", margin=9
    )
    below = {1.0: 5.0, 2.0: 2.0}

    def train(trial: Trial) -> Result:
        accuracy = 95 - below.get(trial.alpha or 0, 0.0)
        return Result(accuracy=accuracy, largest_scale=3.0, images=images)

    search = Search(strategy, Ledger(strategy.settings()))
    run_here(search, train)
    *_, row, _ = (line for line in on_terminal(search).splitlines() if "lr auto" in line)
    assert ("93.00 ≈" in row, "90.00 ≈" in row) == (marked, False)  # of 100 images: ±4.27 %
    assert "95.00 free ◂" in row
    assert "free ≈" not in row  # its source has the mark


def check(
    search: Search, of_runs: RecipeSearch, folder: Path
) -> tuple[Lr, float | None, float | None]:
    """The answer, after a look at every place that shows it."""
    best = search.answer()
    shown = on_terminal(search)
    (record,) = read_studies(of_runs.storage, folder)  # as the page is made of it
    page = answer(record)
    written = on_page(write_report([record], folder / "page"))
    if best is None:
        assert page is None
        assert "best" not in shown
        assert "The best " not in written
        return (math.nan, None, None)
    assert f"best {found(best)} " in shown
    as_json = result(of_runs, search.ledger.record(), best, "")
    assert (as_json["lr"], as_json["alpha"], as_json["accuracy"]) == (
        best.lr,
        best.alpha,
        best.accuracy,
    )
    cost = as_json["cost"]
    assert f"{cost:.1f} of at most {of_runs.strategy.cost:g} T_max" in shown
    assert f"cost spent{cost:.4g} Tmax of at most {of_runs.strategy.cost:g} Tmax" in written
    named = f"The best (is|so far is) lr {shown_lr(best.lr)}, alpha {best.alpha:g}, with accuracy"
    assert re.search(rf"{named} {best.accuracy:.2f} %", written), written
    assert page is not None
    assert (page.first.lr, page.first.alpha, page.mean) == (best.lr, best.alpha, best.accuracy)
    return best.lr, best.alpha, best.accuracy


@pytest.mark.parametrize("strategy", [PlanStrategy(space=SPACE), SamplerStrategy(budget=4)])
def test_a_ledger_in_memory_and_a_study_tell_the_same(strategy: Strategy) -> None:
    study = optuna.create_study(direction="maximize")
    kept = Study.around(
        study,
        settings=strategy.settings(),
        distributions=strategy.distributions(),
    )
    if isinstance(strategy, SamplerStrategy):
        best = run_here(Search(strategy, kept), lambda trial: Result(accuracy=-trial.lr))
        assert best is not None
        assert best.lr == min(trial.lr for trial in kept.record().trials)
        with pytest.raises(ValueError, match="a sampler chooses from what a study holds: give"):
            Search(strategy, Ledger(strategy.settings())).ask()
        return
    forgotten = Ledger(strategy.settings())
    assert run_here(Search(strategy, kept), told) == run_here(Search(strategy, forgotten), told)
    assert [t.asked for t in kept.record().trials] == [t.asked for t in forgotten.record().trials]
    assert kept.results.keys() == forgotten.results.keys()
    assert kept.record().over
    assert forgotten.record().over


def test_what_was_not_asked_cannot_be_told() -> None:
    strategy = PlanStrategy(space=SPACE)
    search = Search(strategy, Ledger(strategy.settings()))
    (trial,) = search.ask()
    assert search.ask(0) == []
    search.tell(trial, told(trial))
    with pytest.raises(ValueError, match="lr1-0-seed0 is not under way: tell what was asked, once"):
        search.tell(trial, told(trial))


def test_what_came_to_no_result_is_asked_for_again() -> None:
    strategy = PlanStrategy(space=SPACE)
    search = Search(strategy, Ledger(strategy.settings()))
    first, second = search.ask(2)
    search.give_back(first)
    assert search.ask(2) == [first]
    assert search.running.keys() == {first.key, second.key}


def test_a_grid_point_that_diverged_is_not_trained_twice() -> None:
    """Two rounds of equal length share a point even where every training of the first diverged."""
    strategy = PlanStrategy(space=SearchSpace(fractions=(1.0, 1.0), splits=2, alphas=(1.0,)))
    study = optuna.create_study(direction="maximize")
    kept = Study.around(study, settings=strategy.settings(), distributions=strategy.distributions())
    trained: list[float] = []

    def train(trial: Trial) -> Result:
        trained.append(trial.lr)
        return Result(accuracy=1.0) if trial.lr == 0.2 else Result(state="diverged")

    best = run_here(Search(strategy, kept), train)
    assert best is not None
    assert best.lr == 0.2
    assert trained == [1.7, 3.2, 0.2]


@pytest.mark.parametrize(
    ("round_", "title", "key"),
    [
        (Round("lr", 1), "lr round 2", "lr2-3-seed1"),
        (Round("alpha", 2), "alpha round", "alpha-3-seed1"),
        (Round("trunk"), "trunk", "trunk-3-seed1"),
        (Round("points"), "points", "point-003"),
    ],
)
def test_a_round_is_read_back_from_disk_alone(round_: Round, title: str, key: str) -> None:
    assert round_ == title
    assert Round.read(title) == round_
    assert Round.read(title).kind == round_.kind
    assert Trial(round=round_, index=3, lr=1.0, seed=1).key == key
    assert Round.read("lr round 0").kind == "lr round 0"


# -- what it imports -------------------------------------------------------------------------------

ALONE = """
import sys, fixnorm
def train(lr, alpha, steps):
    return -abs(lr - 1) - abs(alpha - 2)
found = fixnorm.tune(train, steps=10, splits=2, alphas=(0.5, 2.0), out=sys.argv[1])
assert found.alpha == 2.0
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_search_around_a_function_needs_nothing_of_the_recipes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"optuna", "rich"} <= loaded
    assert loaded.isdisjoint(
        {"torch", "torchvision", "PIL", "timm", "pydantic", "sklearn", "typer"}
    )
