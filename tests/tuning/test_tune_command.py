"""``fixnorm tune`` and ``fixnorm report`` as a user types them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import pytest
import safetensors.torch
import torch

from fixnorm import recipes
from fixnorm.commands import run
from fixnorm.training import RunOptions, changed, train
from fixnorm.tuning import estimate
from fixnorm.tuning.trial import Trial
from helpers import chromium
from helpers.runs import Nursery, nursery
from helpers.searches import BRANCHES, SMALL, finish, stored

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the command line: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            run(list(arguments))
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search with both methods in one folder."""
    out = tmp_path_factory.mktemp("search") / "study"
    finish(out, "--alphas", "0.5,1,8,16", drawn=True)
    return out


# -- before anything is trained --------------------------------------------------------------------


def test_dry_run(said: Said, tmp_path: Path) -> None:
    code, out, _ = said(
        "tune", "digits", "--plan", "paper", "--dry-run", "--out", str(tmp_path / "study")
    )
    assert code == 0
    assert "lr round 1: 0.8 1.4 2 2.6 3.2, 0.2 T_max each" in out
    assert "at most 15 trainings, 11 T_max, about" in out
    assert not (tmp_path / "study").exists()


def test_dry_run_as_json(said: Said) -> None:
    code, out, _ = said("tune", "digits", "--plan", "paper", "--dry-run", "--json", "--seeds", "3")
    assert code == 0
    plan = json.loads(out)
    assert (plan["trials"], plan["cost"]) == (45, 33.0)
    assert plan["hours"] > 0


def test_dry_run_of_the_baseline(said: Said) -> None:
    code, out, _ = said("tune", "--method", "bo-weight-decay", "--budget", "35", "--dry-run")
    assert code == 0
    assert "weight decay in [1e-05, 0.0005], both on a log scale" in out
    assert "at most 35 trainings, 35 T_max" in out


def test_dry_run_without_a_search_for_lr(said: Said) -> None:
    code, out, _ = said("tune", "digits", "--plan", "auto", "--alphas", "1,4,16", "--dry-run")
    assert code == 0
    assert "trunk: alpha 16, lr auto, 1 T_max" in out
    assert "alpha round: 4 1, each from where g meets its cap in the trunk" in out
    assert "at most 3 trainings, 3 T_max, about" in out


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        ([], "auto"),
        (["--seeds", "2", "--margin", "2", "--alphas", "1,2"], "auto"),
        (["--lr-max", "2"], "paper"),
        (["--splits", "3"], "paper"),
        (["--set", "optimizer=lamb"], "paper"),
        (["--set", "optimizer=muon", "--set", "scope=matrix"], "auto"),
        (["--set", "optimizer=muon"], "paper"),
        (["--lr-max", "2", "--plan", "unimodal", "--margin", "2"], "unimodal"),
    ],
)
def test_the_plan_of_who_names_none(said: Said, given: list[str], plan: str) -> None:
    code, out, _ = said("tune", "digits", "--dry-run", *given)
    assert (code, out.partition(";")[0]) == (0, f"digits by fixnorm, {plan}")


def test_angles_are_searched_for_among_angles(said: Said) -> None:
    code, out, _ = said("tune", "--set", "scope=matrix", "--dry-run")
    assert code == 0
    assert "lr round 1: 0.02 0.035 0.05 0.065 0.08, 0.2 T_max each" in out


def test_dry_run_counts_the_probe(said: Said) -> None:
    given = ("--from-weight-decay", "0.4", "1e-4")
    _, out, _ = said("tune", "digits", "--dry-run", "--json", *given)
    plan = json.loads(out)
    assert (plan["trials"], plan["cost"]) == (16, 11.2)


BAD = [
    (["digitz"], "unknown recipe 'digitz': nearest are digits"),
    (["--lr-min", "3", "--lr-max", "1"], "lr_max must be greater than lr_min but got [3, 1]"),
    (["--lr-min", "1", "--lr-max", "1"], "lr_max must be greater than lr_min but got [1, 1]"),
    (["--lr-min", "nan"], "must be finite"),
    (["--splits", "1"], "splits (K) must be at least 2 but got 1"),
    (["--alphas", ""], "alphas must not be empty"),
    (["--alphas", "2,1"], "alphas must increase but got 2 1"),
    (["--plan", "paper", "--alphas", "2,1"], "alphas must increase but got 2 1"),
    (["--alphas", "1,x"], "--alphas needs numbers with commas between but got '1,x'"),
    (["--fractions", "0,1"], "fractions must lie in (0, 1] but got 0 1"),
    (["--plan", "best"], "plan must be one of paper, unimodal, uncapped, auto but got 'best'"),
    *(
        (["--plan", "auto", *given], f"{given[0]} means nothing with --plan auto: it has no search")
        for given in (
            ["--lr-min", "0.1"],
            ["--lr-max", "2"],
            ["--splits", "3"],
            ["--fractions", "1"],
            ["--from-weight-decay", "0.4", "1e-4"],
        )
    ),
    (["--plan", "auto", "--set", "lr=1"], "--set lr=1 means nothing with --plan auto, which sets"),
    (["--set", "lr=1"], "--set lr=1 means nothing with --plan auto, which sets it"),
    (
        ["--plan", "paper", "--set", "lr=auto"],
        "--set lr=auto means nothing in a search over lr: give --plan auto",
    ),
    (
        ["--plan", "auto", "--set", "optimizer=lamb"],
        "lr: auto is for SGD, or for scope=mat",
    ),
    (["--lr-min", "1", "--margin", "1"], "--margin means nothing with --plan paper: it is for"),
    (["--method", "bo"], "method must be fixnorm or bo-weight-decay but got 'bo'"),
    (["--engine", "slurm"], "engine must be local or ray but got 'slurm'"),
    (
        ["--method", "bo-weight-decay", "--sampler", "grid"],
        "sampler must be one of gp, tpe, random",
    ),
    (["--method", "bo-weight-decay", "--budget", "0"], "budget must be at least 1 but got 0"),
    (["--method", "bo-weight-decay", "--seeds", "2"], "trains each point once but got seeds=2"),
    (
        ["--method", "bo-weight-decay", "--weight-decay-min", "1"],
        "weight_decay_max must be greater",
    ),
    (["--set", "epoch=3"], "a recipe has no field 'epoch'; did you mean epochs?"),
    (["--data", "/nowhere"], "digits is embedded and takes no folder but got /nowhere"),
    (["cifar10-small", "--data", "/nowhere"], "data folder /nowhere does not exist"),
    (["cifar10-small"], "cifar10 needs a folder"),
    (["--storage", "mysql://a/b"], "--storage must be sqlite or postgresql but got mysql"),
    (["--storage", "nonsense"], "--storage must be a URL such as postgresql://"),
    (["--from-weight-decay", "0", "1e-4"], "--from-weight-decay needs two numbers > 0 but got 0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda v: " ".join(v)[:40])
def test_bad_input(said: Said, tmp_path: Path, arguments: list[str], message: str) -> None:
    out = tmp_path / "study"
    code, printed, error = said("tune", *arguments, "--out", str(out))
    assert code == 2
    assert printed == ""
    assert message in error
    assert len(error.splitlines()) == 1
    assert not out.exists()


def test_an_out_that_is_a_file(said: Said, tmp_path: Path) -> None:
    (tmp_path / "study").write_text("mine")
    code, _, error = said("tune", "--out", str(tmp_path / "study"))
    assert (code, len(error.splitlines())) == (2, 1)
    assert "is a file: give another --out" in error
    assert (tmp_path / "study").read_text() == "mine"


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\0" + bytes(100)])
def test_an_unreadable_database(said: Said, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "study.db").write_bytes(content)
    code, _, error = said("tune", "--out", str(tmp_path))
    assert (code, len(error.splitlines())) == (2, 1)
    assert "study.db" in error
    assert (tmp_path / "study.db").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


def test_a_foreign_database(said: Said, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("CREATE TABLE songs (name TEXT)")
    database.close()
    code, _, error = said("tune", "--out", str(tmp_path))
    assert code == 2
    assert "is another program's database, its table 'songs' is not Optuna's: give" in error


def test_report_of_nothing(said: Said, tmp_path: Path) -> None:
    code, _, error = said("report", str(tmp_path))
    assert code == 2
    assert "does not exist: no search has been run there" in error


# -- a search --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_search_leaves(study: Path) -> None:
    result = json.loads((study / "result.json").read_text())
    record = stored(study)
    trained = [t for t in record.trials if t.state == "trained"]
    free = [t for t in record.trials if t.state == "free"]
    assert (result["trials"], result["free"]) == (len(trained), len(free))
    assert result["cost"] == sum(t.fraction for t in trained)
    assert result["announced"] == {"trials": 7, "cost": 6.0}
    best = max(t.accuracy for t in record.trials if t.accuracy is not None)
    assert result["accuracy"] == best
    assert record.over
    assert (study / "report.html").stat().st_size > 10_000
    assert sorted(path.name for path in (study / "figures").iterdir()) == [
        "alpha.png",
        "curves-alpha-round.png",
        "curves-lr-round-1.png",
        "curves-lr-round-2.png",
        "learning-rate.png",
        "progress.png",
    ]
    wanted = f"--set lr={result['lr']!r} --set alpha={result['alpha']!r}"
    assert result["command"].endswith(wanted)
    assert result["command"] in (study / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.skipif(chromium.browser() is None, reason="needs Chromium: apt install chromium")
def test_the_page_in_a_browser(study: Path) -> None:
    seen = chromium.inspect(study / "report.html")
    panels = {"learning-rate": 2, "alpha": 1, "progress": 1}
    panels |= {f"curves-{name}": 5 for name in ("lr-round-1", "lr-round-2", "alpha-round")}
    wanted = {f"study-1-digits-fixnorm-paper-{name}": n for name, n in panels.items()}
    assert seen.problems(set(wanted)) == []
    assert {name: len(boxes) for name, boxes in seen.figures.items()} == wanted
    assert seen.console == []


def check_from_zero(trial: Trial, folder: Path | None, out: Path) -> None:
    """What the search has of a trial is what its training from zero gives, bit for bit."""
    assert folder is not None
    twin = json.loads((folder / "recipe.json").read_text())
    recipe = changed(recipes.get("digits"), **(twin | {"alpha": trial.alpha}))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = train(recipe, data=None, out=out, options=RunOptions(tensorboard=False))
    finally:
        torch.set_num_threads(threads)
    assert result["accuracy"] == trial.accuracy
    ours, theirs = (safetensors.torch.load_file(f / "weights.safetensors") for f in (out, folder))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_free_slot_is_the_training_it_stands_for_bit_for_bit(study: Path, tmp_path: Path) -> None:
    """Train one of the slots that were filled without training."""
    record = stored(study)
    free = next(t for t in record.trials if t.state == "free")
    source = next(t for t in record.trials if t.key == free.source)
    assert free.alpha != source.alpha
    check_from_zero(free, source.folder, tmp_path / "run")


@pytest.mark.slow
def test_branches_are_the_trainings_that_they_save_bit_for_bit(tmp_path: Path) -> None:
    """Plan auto against all alphas from zero: the same accuracies, so the same answer."""
    out = tmp_path / "study"
    result = finish(out, *BRANCHES)
    record = stored(out)
    states = {t.alpha: (t.state, t.cost) for t in record.trials}
    assert states == {
        16.0: ("trained", 1.0),
        2.0: ("free", 0.0),
        1.0: ("trained", 0.5),
        0.5: ("trained", 1.0),
    }
    assert (result["trials"], result["free"], result["cost"]) == (3, 1, 2.5)
    folders = {t.key: t.folder for t in record.trials}
    for trial in record.trials:
        folder = folders[trial.source or trial.key]
        check_from_zero(trial, folder, tmp_path / f"alpha{trial.alpha}")
    best = max(record.trials, key=lambda t: (t.accuracy or 0.0, -(t.alpha or 0.0)))
    assert (result["lr"], result["alpha"], result["accuracy"]) == (
        "auto",
        best.alpha,
        best.accuracy,
    )
    assert result["command"].endswith(f"--set lr=auto --set alpha={best.alpha!r}")
    drawn = {path.name for path in (out / "figures").iterdir()}
    assert {"branches.png", "auto-lr.png", "curves-trunk-and-branches.png"} <= drawn


@pytest.mark.slow
def test_the_same_command_again_trains_nothing(study: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in study.rglob("weights.safetensors")}
    finish(study, "--alphas", "0.5,1,8,16", drawn=True)
    assert {p: p.stat().st_mtime_ns for p in study.rglob("weights.safetensors")} == before


@pytest.mark.slow
def test_other_settings_are_refused(said: Said, study: Path) -> None:
    database = (study / "study.db").read_bytes()
    options = [*SMALL, "--alphas", "0.5,1,8,16", "--lr-max", "1.6", "--set", "seed=3"]
    code, _, error = said("tune", "digits", "--out", str(study), *options)
    assert code == 2
    assert "recipe.seed (0 there, 3 here), space.lr_max (3.2 there, 1.6 here)" in error
    assert (study / "study.db").read_bytes() == database


@pytest.mark.slow
def test_the_dashboard_opens_the_study_as_it_is(study: Path) -> None:
    from optuna.storages import RDBStorage
    from optuna_dashboard import wsgi

    storage = RDBStorage(f"sqlite:///{study / 'study.db'}")
    environment: dict[str, object] = {"PATH_INFO": "/api/studies"}
    setup_testing_defaults(environment)
    answer: list[str] = []
    body = wsgi(storage)(environment, lambda status, *rest: answer.append(status))
    names = json.loads(b"".join(body))
    storage.engine.dispose()
    assert answer == ["200 OK"]
    assert "digits-fixnorm-paper" in json.dumps(names)


@pytest.mark.slow
def test_the_baseline_and_the_comparison(
    nursery: Nursery, said: Said, study: Path, tmp_path: Path
) -> None:
    """The rival into the same folder; its budget can be raised; the report shows both."""
    rival = [*SMALL[:6], "--method", "bo-weight-decay", "--workers", "2"]
    for budget in ("2", "3"):
        words = ["tune", "digits", "--out", str(study), *rival, "--budget", budget]
        nursery.run(words, drawn=False)
    result = json.loads((study / "result.json").read_text())
    assert (result["method"], result["trials"], result["alpha"]) == ("bo-weight-decay", 3, None)
    assert 1e-5 <= result["weight_decay"] <= 5e-4
    code, printed, _ = said("report", str(study), "--out", str(tmp_path / "report"))
    assert code == 0
    page = Path(printed.strip()).read_text()
    assert "digits-fixnorm-paper" in page or "paper" in page
    assert (tmp_path / "report" / "figures" / "comparison.png").exists()


@pytest.mark.slow
def test_from_weight_decay(nursery: Nursery, tmp_path: Path) -> None:
    out = tmp_path / "study"
    words = ["tune", "digits", "--out", str(out), *SMALL, "--alphas", "0.5"]
    life = nursery.run([*words, "--from-weight-decay", "0.2", "1e-3"], drawn=False)
    slope = estimate.decay_slope(out / "fixnorm-paper" / "probe" / "metrics.csv")
    lr = estimate.equivalent_lr(0.2, 1e-3, slope)
    space = json.loads((out / "result.json").read_text())["space"]
    assert (space["lr_min"], space["lr_max"]) == estimate.range_around(lr)
    assert f"turns the weights as FixNorm does at lr {lr:.2g}" in life.said().replace("\n", " ")


def test_equivalent_lr(tmp_path: Path) -> None:
    """λ_t = 0.0005·lr_t: at lr 0.4 and λ 2e-4, lr_t·λ_t = 8e-5 asks for lr_t = 0.4."""
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("epoch,lr,implied_decay\n1,1.0,0.0005\n2,0.5,0.00025\n3,0.0,\n")
    assert estimate.decay_slope(metrics) == 0.0005
    assert estimate.equivalent_lr(0.4, 2e-4, 0.0005) == pytest.approx(0.4)
    assert estimate.range_around(0.8) == (0.2, 3.2)
