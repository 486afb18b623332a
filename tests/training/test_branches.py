"""A run that leaves another where its cap is met ends with the bits of a training from zero."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fixnorm.commands import run
from fixnorm.methods import under_cap
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.branches import Branches
from fixnorm.training.checkpoint import read, write
from fixnorm.training.result import RunEnd, read_result
from fixnorm.training.view import View
from helpers.dense_runs import segmenter, striped_streets
from helpers.runs import Nursery, Outcome, nursery, ranks, steps_saved
from helpers.small_runs import small

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

ALPHAS = (0.5, 0.6, 0.8, 0.9, 1.0, 2.0)
ROW = 8
"""Steps of an epoch."""


def longer(**changes: Any) -> Recipe:
    """48 steps in which |g|/√C grows from 0.56 to about 1.15."""
    return small(**{"alpha": 16.0, "epochs": 6, "train_per_class": 16, "batch_size": 20} | changes)


class Words(View):
    """Notes what is said; at some step, ends the run as a kill does."""

    def __init__(self, die_after: int | None = None) -> None:
        self.said: list[str] = []
        self._last = die_after

    def message(self, text: str) -> None:
        self.said.append(text)

    def step(self, step: int, numbers: Mapping[str, float] | None) -> None:
        if step == self._last:
            raise KeyboardInterrupt


def trained(
    recipe: Recipe,
    out: Path,
    *,
    data: Path | None = None,
    view: View | None = None,
    **options: Any,
) -> dict[str, Any]:
    quiet = RunOptions(tensorboard=False, pictures=0, **options)
    return train(recipe, data=data, out=out, options=quiet, view=view)


def same_but_for_cost(branch: Path, full: Path) -> None:
    """Weights, lines and numbers of the two; what a branch spares is all they differ in."""
    found, expected = Outcome.of(branch), Outcome.of(full)
    assert found.metrics == expected.metrics
    assert found.weights == expected.weights, "the weights differ"
    assert found.numbers | {"share": 1.0} == expected.numbers


def starts(out: Path, alphas: tuple[float, ...] = ALPHAS) -> dict[float, int]:
    """For each alpha the step of the last state before it was met."""
    kept = Branches(out / "branches").kept()
    found = {a: [state.step for state in kept if under_cap(state.scale, a)] for a in alphas}
    return {alpha: steps[-1] for alpha, steps in found.items() if steps}


def share_from(step: int) -> float:
    """Of the 48 steps, what is left after some."""
    return (48 - step) / 48


# -- exactness -------------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {},
    "lr=auto": {"lr": "auto"},
    "lr=auto, an average on the sphere": {"lr": "auto", "ema": 0.9, "ema_on_sphere": True},
    "fp16, accumulation, clipping": {"precision": "fp16", "accumulate": 2, "clip": 5.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_branches_end_as_trainings_from_zero(tmp_path: Path, name: str) -> None:
    recipe, trunk = longer(**SETTINGS[name]), tmp_path / "trunk"
    trained(recipe, trunk, branches=ALPHAS)
    begun = starts(trunk)
    assert 0.5 not in begun  # g starts above it
    assert len({begun[0.6], begun[0.8], begun[1.0]}) == 3, "the caps are met in different rows"
    # one file for all alphas that are met in a row, none for what was never met
    assert len(list((trunk / "branches").iterdir())) == len({begun[a] for a in ALPHAS[1:-1]})
    for alpha in (0.6, 1.0) if name == "momentum" else (0.8,):
        own = changed(recipe, alpha=alpha)
        branch, full = tmp_path / f"branch-{alpha}", tmp_path / f"full-{alpha}"
        result = trained(own, branch, origin=trunk)
        assert trained(own, full)["share"] == 1.0
        assert result["share"] == share_from(begun[alpha])
        same_but_for_cost(branch, full)
    assert Outcome.of(trunk).weights != Outcome.of(full).weights


def test_the_state_is_the_last_before_the_cap_is_met(tmp_path: Path) -> None:
    """Against every checkpoint of the run: the row after has met the alpha."""
    trunk = tmp_path / "trunk"
    trained(longer(), trunk, branches=ALPHAS, checkpoint_steps=ROW, keep=100)
    scale = {
        step: read(trunk / "checkpoints" / f"step-{step:09d}.ckpt")["largest_scale"].item()
        for step in steps_saved(trunk)
    }
    assert len(scale) == 6
    expected = {
        alpha: max((step for step in scale if scale[step] < alpha), default=None)
        for alpha in ALPHAS
        if scale[48] >= alpha
    }
    assert starts(trunk, (*expected,)) == {a: s for a, s in expected.items() if s is not None}


@pytest.mark.slow
def test_iterations_and_two_heads(tmp_path: Path) -> None:
    """A segmenter: rows are iterations, and the larger of two scales decides."""
    data = striped_streets(tmp_path / "streets")
    recipe = segmenter(alpha=8.0, iterations=6, lr=1.0)
    scales: list[float] = []
    trained(recipe, tmp_path / "all", data=data, checkpoint_steps=2, keep=9)
    for step in steps_saved(tmp_path / "all"):
        state = read(tmp_path / "all" / "checkpoints" / f"step-{step:09d}.ckpt")
        scales.append(state["largest_scale"].item())
    assert scales[0] < scales[1], "no cap is met after the first row"
    alpha = (scales[0] + scales[1]) / 2
    trained(recipe, tmp_path / "trunk", data=data, branches=(alpha,))
    own = changed(recipe, alpha=alpha)
    result = trained(own, tmp_path / "branch", data=data, origin=tmp_path / "trunk")
    assert result["share"] == 4 / 6
    trained(own, tmp_path / "full", data=data)
    same_but_for_cost(tmp_path / "branch", tmp_path / "full")


@pytest.mark.slow
def test_a_branch_of_a_branch(tmp_path: Path) -> None:
    """It begins with what the second run kept, where the first kept nothing as late."""
    recipe, (trunk, second, third, full) = longer(), (tmp_path / n for n in "abcd")
    trained(recipe, trunk, branches=(0.6,))
    trained(changed(recipe, alpha=1.1), second, origin=trunk, branches=(1.0,))
    assert starts(trunk) == {0.6: 8, 0.8: 8, 0.9: 8, 1.0: 8, 2.0: 8}
    own = changed(recipe, alpha=1.0)
    assert trained(own, third, origin=second)["share"] == share_from(starts(second)[1.0])
    assert starts(second)[1.0] > 8
    trained(own, full)
    same_but_for_cost(third, full)


# -- killed, and resumed ---------------------------------------------------------------------------

FIELDS = {
    "epochs": 6,
    "warmup_epochs": 1,
    "train_per_class": 16,
    "val_per_class": 9,
    "batch_size": 20,
    "mcbr_every": 1,
}
KEEP = ("--branches", ",".join(map(str, ALPHAS)))


def command(out: Path, *more: str, **changes: Any) -> list[str]:
    """The same as :func:`longer`, as a user types it."""
    fields = FIELDS | {"alpha": 16} | changes
    settings = [word for key, value in fields.items() for word in ("--set", f"{key}={value}")]
    return ["train", "digits", "--out", str(out), "--no-tensorboard", *settings, *more]


def states(out: Path) -> dict[str, Any]:
    """What the files hold, but for the time it took."""
    found = {path.name: read(path) for path in (out / "branches").iterdir()}
    return {name: {**state, "seconds": 0} for name, state in found.items()}


def assert_same_states(found: Path, expected: Path) -> None:
    here, there = states(found), states(expected)
    assert here.keys() == there.keys()
    assert equal(here, there)


def equal(here: Any, there: Any) -> bool:
    """Bit for bit, in plain containers."""
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(equal(here[key], there[key]) for key in here)
    if isinstance(here, list):
        return len(here) == len(there) and all(map(equal, here, there))
    return torch.equal(here, there) if isinstance(here, torch.Tensor) else bool(here == there)


@pytest.mark.slow
def test_a_killed_run_keeps_the_same_states(nursery: Nursery, tmp_path: Path) -> None:
    """Killed before every eleventh, twelfth, … operation on its files; between rows, too."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    nursery.run(command(whole, *KEEP))
    kills, moments = 0, set()
    while True:
        arguments = command(out, *KEEP, "--checkpoint-steps", "3")
        life = nursery.start(arguments, kill_at=17 + kills)
        if life.wait() != -signal.SIGKILL:
            break
        kills += 1
        moments.add(tuple(sorted(state.step for state in Branches(out / "branches").kept())))
    assert life.wait() == 0, life.said()
    assert kills > 5
    assert len(moments) > 3, "the kills came at different rows"
    assert Outcome.of(out) == Outcome.of(whole)
    assert_same_states(out, whole)


@pytest.mark.slow
def test_a_resumed_run_forgets_states_of_steps_that_it_repeats(tmp_path: Path) -> None:
    """Another machine may come to other bits: no state may be of the life before."""
    recipe, out = longer(), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        trained(recipe, out, branches=ALPHAS, checkpoint_steps=20, view=Words(die_after=39))
    before = starts(out, (2.0,))
    assert before == {2.0: 32}  # and the checkpoint is of step 20
    with pytest.raises(KeyboardInterrupt):
        trained(recipe, out, branches=ALPHAS, view=Words(die_after=21))
    assert starts(out, (2.0,)) == {2.0: 16}
    trained(recipe, out, branches=ALPHAS)
    trained(recipe, tmp_path / "whole", branches=ALPHAS)
    assert_same_states(out, tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_branch_goes_on_without_the_run_it_left(tmp_path: Path) -> None:
    recipe, (trunk, branch, full) = longer(), (tmp_path / n for n in "abc")
    trained(recipe, trunk, branches=(0.8,))
    start = starts(trunk)[0.8]
    own = changed(recipe, alpha=0.8)
    with pytest.raises(KeyboardInterrupt):
        trained(own, branch, origin=trunk, view=Words(die_after=start + 1))
    assert len((branch / "metrics.csv").read_text().splitlines()) == 1 + start // ROW
    shutil.rmtree(trunk)
    assert trained(own, branch, origin=trunk)["share"] == share_from(start)
    trained(own, full)
    same_but_for_cost(branch, full)


@pytest.mark.slow
def test_two_processes(nursery: Nursery, tmp_path: Path) -> None:
    trunk, branch, full = (tmp_path / n for n in "abc")
    for arguments in (
        command(trunk, *KEEP),
        command(branch, "--from", str(trunk), alpha=0.8),
        command(full, alpha=0.8),
    ):
        for life in ranks(nursery, arguments):
            assert life.wait() == 0, life.said()
    same_but_for_cost(branch, full)
    assert 0 < json.loads((branch / "result.json").read_text())["share"] < 1


# -- what cannot be a start ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trunks") / "trunk"
    trained(longer(), out, branches=ALPHAS)
    return out


@pytest.fixture(scope="module")
def unfinished(trunk: Path) -> Path:
    out = shutil.copytree(trunk, trunk.parent / "unfinished")
    (out / "result.json").unlink()
    return out


@pytest.fixture(scope="module")
def capless(trunk: Path) -> Path:
    out = trunk.parent / "capless"
    trained(longer(method="wn-fc", alpha=None, epochs=1), out)
    return out


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no run": ("nowhere", {"alpha": 0.8}, "nowhere does not exist: give the --out folder of"),
    "other recipe": (
        "trunk",
        {"alpha": 0.8, "lr": 0.5, "seed": 1},
        "is a run of another recipe: lr (0.8 there, 0.5 here), seed (0 there, 1 here); only alpha",
    ),
    "larger": ("trunk", {"alpha": 17}, "alpha must be less than its 16 but got 17"),
    "the same": ("trunk", {"alpha": 16}, "alpha must be less than its 16 but got 16"),
    "no cap": ("capless", {"alpha": 0.8, "epochs": 1}, "method 'wn-fc' has no cap"),
    "never met": ("trunk", {"alpha": 2}, "never met alpha=2, its largest was 1.1"),
    "not met yet": ("unfinished", {"alpha": 2}, "not finished and not known to have met alpha=2"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("unfinished", "capless")
def test_runs_that_are_no_start(
    name: str, trunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, changes, message = REFUSED[name]
    arguments = command(tmp_path / "run", "--from", str(trunk.parent / folder), **changes)
    assert message in refused(arguments, tmp_path / "run", capsys)


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ("16", "--branches must be greater than 0 and less than alpha=16 but got 16"),
        ("1,0", "greater than 0 and less than alpha=16 but got 0"),
        ("1,nan", "--branches must be finite but got nan"),
        ("1,x", "--branches needs numbers with commas between but got '1,x'"),
    ],
)
def test_alphas_that_no_branch_can_have(
    branches: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(tmp_path / "run", "--branches", branches)
    assert message in refused(arguments, tmp_path / "run", capsys)


def test_a_method_without_a_cap_has_no_branches(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--branches: method 'wn-fc' has no cap"):
        trained(longer(method="wn-fc", alpha=None), tmp_path / "run", branches=(1.0,))


def refused(arguments: list[str], out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    said = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2, said
    assert not out.exists()
    (line,) = [line for line in said if line.startswith("fixnorm: ")]
    return line


def test_an_unfinished_run_past_the_cap_is_a_start(unfinished: Path, tmp_path: Path) -> None:
    """Time and images are those of the branch alone."""
    start = state_for(0.8, unfinished)
    write(start, read(start) | {"seconds": 1e6})
    own = changed(longer(), alpha=0.8)
    result = trained(own, tmp_path / "branch", origin=unfinished)
    assert result["share"] == share_from(16)
    assert result["seconds"] < 1e6
    images = result["images_per_second"] * result["seconds"]
    assert images == pytest.approx(32 * 20, rel=0.01)


@pytest.mark.slow
def test_until_the_run_ends_a_state_tells_that_all_were_met(tmp_path: Path) -> None:
    """Of a run that is killed past its only alpha, in the first row or in a later one."""
    recipe, own = longer(), changed(longer(), alpha=0.8)
    for alphas, begins in (((0.8,), 16), ((0.5,), 0)):
        out, branch = tmp_path / f"{begins}", tmp_path / f"branch-{begins}"
        with pytest.raises(KeyboardInterrupt):
            trained(recipe, out, branches=alphas, view=Words(die_after=33))
        own = changed(recipe, alpha=alphas[0])
        assert trained(own, branch, origin=out)["share"] == share_from(begins)


def state_for(alpha: float, out: Path) -> Path:
    """The file of the last state before alpha was met."""
    return [s.path for s in Branches(out / "branches").kept() if under_cap(s.scale, alpha)][-1]


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def later(path: Path) -> None:
    """The state of a step after the cap was met, under the name of one before."""
    last = max(path.parent.iterdir())
    last.replace(path)


def other(path: Path) -> None:
    state = read(path)
    state["recipe"]["lr"] = 0.5
    write(path, state)


def incomplete(path: Path) -> None:
    state = read(path)
    del state["optimizer"]["param_groups"][0]["momentum"]
    write(path, state)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (flipped, "its checksum is wrong"),
        (later, "is a state from after alpha=0.8 was met"),
        (other, "is a state of another recipe: lr (0.5 there, 0.8 here)"),
        (incomplete, "is no state of this run: optimizer.param_groups[0] has other options"),
        (Path.unlink, None),
    ],
)
def test_a_state_that_is_none_is_passed_over(
    spoil: Callable[[Path], None], message: str | None, trunk: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(trunk, tmp_path / "trunk")
    spoil(state_for(0.8, copy))
    words, out = Words(die_after=1 if message else 9), tmp_path / "branch"
    with pytest.raises(KeyboardInterrupt):
        trained(changed(longer(), alpha=0.8), out, origin=copy, view=words)
    said = "\n".join(words.said)
    if message is None:
        assert "the first 8 steps are those of" in said  # the one for 0.6 serves, too
    else:
        assert message in said
        assert "starting from the beginning" in said


@pytest.mark.slow
def test_a_cap_that_is_met_in_the_first_row(trunk: Path, tmp_path: Path) -> None:
    words = Words()
    own, branch, full = changed(longer(), alpha=0.5), tmp_path / "branch", tmp_path / "full"
    assert trained(own, branch, origin=trunk, view=words)["share"] == 1.0
    assert any("has no state from before alpha=0.5 was met: starting" in w for w in words.said)
    trained(own, full)
    assert Outcome.of(branch) == Outcome.of(full)


# -- what it cost ----------------------------------------------------------------------------------


def test_results_of_older_versions_are_of_whole_trainings(trunk: Path, tmp_path: Path) -> None:
    path = trunk / "result.json"
    values = json.loads(path.read_text())
    assert values.pop("share") == 1.0
    (tmp_path / "old.json").write_text(json.dumps(values))
    assert read_result(tmp_path / "old.json", RunEnd, advice="").share == 1.0
