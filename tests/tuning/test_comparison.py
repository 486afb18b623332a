"""The answer and its rival, trained anew: which trainings, in what words, and after a stop."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fixnorm import recipes
from fixnorm.commands import run
from fixnorm.report.comparison import Compared
from fixnorm.tuning.comparison import COMPARISON, Comparison, ThenCompared
from fixnorm.tuning.engine import Unfinished
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.search import Ledger, Search, run_here
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.study import read_studies
from fixnorm.tuning.trial import Result, StudyRecord, Trial

ANEW = Comparison(
    lr="auto", alpha=0.5, rival_lr=0.04, rival_weight_decay=5e-4, name="auto", first_seed=1, seeds=3
)
FINAL = {0: (88.0, 89.0, 90.0), 1: (86.0, 86.0, 86.0)}


def trained(trial: Trial) -> Result:
    return Result(accuracy=FINAL[trial.index][trial.seed - 1], images=1597)


def record_of(values: Callable[[Trial], Result] = trained) -> StudyRecord:
    ledger = Ledger(ANEW.settings())
    run_here(Search(ANEW, ledger), values)
    return ledger.record()


def test_pairs_of_the_same_fresh_seeds() -> None:
    keys = [trial.key for trial in record_of().trials]
    pairs = [(f"anew-0-seed{seed}", f"anew-1-seed{seed}") for seed in (1, 2, 3)]
    assert keys == [key for pair in pairs for key in pair]
    assert ANEW.trainings == len(keys)
    assert Comparison.of(json.loads(json.dumps(ANEW.settings()))) == ANEW


def test_other_trials_are_refused() -> None:
    record = record_of()
    first = record.trials[0]
    for wrong in (replace(first, alpha=1.0), replace(first, seed=9, key=""), first):
        with pytest.raises(ValueError, match="none of the comparison's"):
            ANEW.check(replace(record, trials=(*record.trials, wrong)))
    with pytest.raises(ValueError, match="do not say what is compared"):
        Comparison.of({"method": COMPARISON, "strategy": "auto"})


def test_the_search_first_then_its_answer() -> None:
    """The comparison begins when no training of the search is left, with its answer."""
    space = SearchSpace(alphas=(0.5, 16.0))
    strategy = PlanStrategy(space=space, plan="auto", margin=100.0)
    begun: list[Trial] = []

    def compare(best: Trial) -> Search:
        begun.append(best)
        return Search(ANEW, Ledger(ANEW.settings()))

    whole = ThenCompared(Search(strategy, Ledger(strategy.settings())), compare)
    order: list[Trial] = []
    while trials := whole.ask(2):
        order += trials
        assert bool(begun) == all(trial.round == "anew" for trial in trials)
        for trial in trials:
            scale = 3.0 if trial.alpha == 16.0 else 0.6
            whole.tell(trial, Result(accuracy=50.0 + (trial.alpha == 0.5), largest_scale=scale))
    assert [trial.alpha for trial in begun] == [0.5]
    assert [trial.round.kind for trial in order] == ["trunk", "alpha"] + ["anew"] * 6
    assert whole.done == 8


def test_the_rivals_trainings_fill_what_room_the_search_leaves() -> None:
    """Which they may do before its answer is known; the comparison then finds them done."""
    strategy = PlanStrategy(space=SearchSpace(alphas=(0.5, 16.0)), plan="auto")
    begun: list[Search] = []

    def compare(best: Trial) -> Search:
        begun.append(Search(ANEW, Ledger(ANEW.settings())))
        return begun[0]

    whole = ThenCompared(Search(strategy, Ledger(strategy.settings())), compare, ANEW.rivals)

    def ended(trial: Trial, accuracy: float) -> None:
        scale = 3.0 if trial.alpha == 16.0 else 0.6
        whole.tell(trial, Result(accuracy=accuracy, largest_scale=scale))

    trunk, first = whole.ask(2)
    assert (trunk.round.kind, first) == ("trunk", ANEW.rivals[0])
    assert whole.ask(0) == []
    whole.give_back(first)  # killed: it is asked for again, after those that have not begun
    (second,) = whole.ask(1)
    ended(second, 86.0)
    (third,) = whole.ask(1)
    ended(trunk, 50.0)
    (branch,) = whole.ask(1)
    assert branch.round.kind == "alpha"
    ended(branch, 51.0)
    assert (second, third) == tuple(ANEW.rivals[1:])
    asked = whole.ask(2)  # third is still under way, and asked for by nobody else
    ours = [trial for trial in ANEW.trials if trial.alpha is not None]
    assert asked == [ours[0], first]
    for trial, accuracy in ((third, 85.0), (ours[0], 88.0), (first, 84.0)):
        ended(trial, accuracy)
    while left := whole.ask(2):
        for trial in left:
            assert trial in ours
            ended(trial, 89.0)
    (comparison,) = begun
    scores = {trial: result.accuracy for trial, result in comparison.ledger.results.items()}
    assert [scores[trial] for trial in ANEW.rivals] == [84.0, 86.0, 85.0]
    assert [scores[trial] for trial in ours] == [88.0, 89.0, 89.0]
    assert whole.done == 8


def test_a_search_without_an_answer_is_compared_with_nothing() -> None:
    strategy = PlanStrategy(space=SearchSpace(alphas=(16.0,)), plan="auto")

    def compare(best: Trial) -> Search:
        raise AssertionError(best)

    whole = ThenCompared(Search(strategy, Ledger(strategy.settings())), compare, ANEW.rivals)
    trunk, rival = whole.ask(2)
    whole.tell(trunk, Result(state="diverged"))
    assert whole.ask(1) == []
    whole.tell(rival, Result(accuracy=50.0))
    assert whole.ask(2) == []


def test_what_it_says() -> None:
    """Differences 2, 3, 4: mean 3, deviation 1, and t of 2 degrees is 4.303 at 95 %."""
    compared = Compared(record_of())
    assert compared.difference.mean == 3.0
    assert compared.difference.half_width == pytest.approx(4.3027 / 3**0.5, abs=1e-3)
    told = compared.told()
    assert "trained anew with 3 fresh seeds" in told
    assert "FixNorm 89.00 ± 1.00 (lr auto, alpha 0.5)" in told
    assert "weight decay 86.00 ± 0.00 (lr 0.04, weight decay 5e-4)" in told
    assert told.endswith("+3.00 [+0.52, +5.48], FixNorm is better")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ((-4.0, 0.0, 4.0), "level, as far as 3 pairs can tell"),
        ((-9.0,) * 3, "weight decay is better"),
    ],
    ids=["level", "worse"],
)
def test_who_is_better(change: tuple[float, ...], verdict: str) -> None:
    def values(trial: Trial) -> Result:
        value = 86.0 + (change[trial.seed - 1] if trial.index == 0 else 0.0)
        return Result(accuracy=value + 0.1 * trial.seed * trial.index)

    assert Compared(record_of(values)).verdict == verdict


def test_a_pair_with_one_end_is_left_out() -> None:
    def values(trial: Trial) -> Result:
        lost = trial.seed == 2 and trial.index == 0
        return Result(state="diverged", reason="nan") if lost else trained(trial)

    compared = Compared(record_of(values))
    assert compared.values == ([88.0, 90.0], [86.0, 86.0])
    assert Compared(record_of(lambda _: Result(state="diverged", reason="nan"))).told() == ""


def test_the_embedded_default_has_few_images() -> None:
    """200 to train on, at least 1,200 to tell trainings apart, none in both."""
    from fixnorm.data.packed import open_few_digits

    source = open_few_digits()
    assert (len(source.train.labels), len(source.val.labels)) == (200, 1597)
    assert [int((source.train.labels == c).sum()) for c in range(10)] == [20] * 10
    rival = recipes.get("few-digits", "weight-decay")
    assert rival.lr == pytest.approx(0.1 * rival.batch_size / 128, abs=2e-3)
    assert rival.weight_decay == 5e-4


SHORT = (
    *("--set", "epochs=1", "--set", "warmup_epochs=0", "--set", "val_per_class=9"),
    *("--alphas", "0.5", "--workers", "2"),
)


@pytest.mark.slow
def test_a_search_ends_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the midst of the comparison, the same command ends it; the page has it."""
    tell = ThenCompared.tell

    def stopping(self: ThenCompared, trial: Trial, result: Result) -> Trial:
        told = tell(self, trial, result)
        if self.done == 4:
            raise Unfinished("the power went out")
        return told

    out = tmp_path / "study"
    command = ["tune", "--out", str(out), *SHORT]
    with monkeypatch.context() as patched:
        patched.setattr(ThenCompared, "tell", stopping)
        with pytest.raises(SystemExit) as stopped:
            run(command)
    assert stopped.value.code
    first = {t.key: t.accuracy for s in read(out) for t in s.trials if t.accuracy is not None}
    assert len(first) == 4
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(command)
    said = capsys.readouterr().err
    assert not ended.value.code, said
    search, compared = read(out)
    assert (search.method, compared.method) == ("fixnorm", COMPARISON)
    values = {t.key: t.accuracy for s in (search, compared) for t in s.trials}
    assert sorted(values) == sorted(
        ["trunk-0-seed0", *(f"anew-{side}-seed{seed}" for side in (0, 1) for seed in range(1, 4))]
    )
    assert values | first == values
    recipe = json.loads((compared.trials[1].folder or out).joinpath("recipe.json").read_text())
    assert (recipe["method"], recipe["lr"], recipe["epochs"]) == ("weight-decay", 0.04, 1)
    assert "trained anew with 3 fresh seeds" in said
    result = json.loads((out / "result.json").read_text())
    assert result["comparison"] == Compared(compared).to_dict()
    page = (out / "report.html").read_text()
    assert "Beside weight decay, trained anew" in page
    assert (out / "figures" / "anew.png").exists()
    assert len(re.findall(r'<div role="img" aria-label="Final accuracy, pair by pair"', page)) == 1


def read(out: Path) -> list[StudyRecord]:
    return read_studies(Storage.in_folder(out), out)


@pytest.mark.parametrize(
    ("words", "trials"),
    [([], 7), (["--no-compare"], 1), (["digits"], 1), (["digits", "--compare"], 7)],
    ids=str,
)
def test_when_there_is_one(
    words: list[str], trials: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(["tune", *words, "--alphas", "0.5", "--dry-run", "--json"])
    assert json.loads(capsys.readouterr().out)["trials"] == trials


def test_not_beside_the_rival_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(["tune", "--method", "bo-weight-decay", "--compare", "--dry-run"])
    assert stopped.value.code == 2
    assert "--compare means nothing with --method bo-weight-decay" in capsys.readouterr().err
