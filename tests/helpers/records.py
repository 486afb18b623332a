"""Searches made up for the tests of the report, with the files their runs would have left."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

from fixnorm.tuning.trial import Result, Round, State, StudyRecord, Trial

SPACE: dict[str, Any] = {
    "lr_min": 0.2,
    "lr_max": 3.2,
    "splits": 5,
    "fractions": [0.2, 1.0],
    "alphas": [0.5, 1.0, 2.0, 4.0, 8.0, 16.0],
    "seeds": 1,
}
START = 1_800_000_000.0
CLASSES = 10


def trial(key: str, **given: Any) -> Trial:
    """A trained trial of full length, but for what is given."""
    fields: dict[str, Any] = {
        "number": 0,
        "round": "lr round 1",
        "index": 0,
        "lr": 1.4,
        "alpha": 0.5,
        "weight_decay": None,
        "fraction": 1.0,
        "seed": 0,
        "state": "trained",
    }
    fields |= given
    state = fields.pop("state")
    ended = {f.name: fields.pop(f.name, f.default) for f in dataclasses.fields(Result)[1:]}
    result = None if state == "running" else Result(state=state, **ended)
    return Trial(key=key, **{**fields, "round": Round.read(fields["round"])}, result=result)


def study(*trials: Trial, **given: Any) -> StudyRecord:
    """A search of these trials, numbered in this order and ended one second after another."""
    numbered = tuple(
        dataclasses.replace(t, number=place, result=_ended(t, START + place))
        for place, t in enumerate(trials)
    )
    fields: dict[str, Any] = {
        "name": "digits",
        "method": "fixnorm",
        "strategy": "paper",
        "metric": "accuracy (%)",
        "settings": {},
    }
    return StudyRecord(trials=numbered, **{**fields, **given})


def paper_study(
    folder: Path,
    *,
    name: str = "cifar10-small",
    seeds: int = 1,
    epochs: int = 20,
    lost: bool = True,
) -> StudyRecord:
    """Algorithm 4: lr rounds at 0.2 and 1.0 of T_max, alphas 2 to 8 free.

    With ``lost``, the highest lr of round 1 diverges and the second of round 2 fails.
    """
    noise = random.Random(name)
    trials: list[Trial] = []

    def add(
        slot: str, title: str, index: int, lr: float, alpha: float, fraction: float, state: State
    ) -> None:
        for seed in range(seeds):
            key = f"{slot}-{index}-seed{seed}"
            shift = noise.gauss(0, 0.25)
            here: State = state if seed == seeds - 1 or state == "free" else "trained"
            accuracy = _accuracy(lr, alpha, fraction) + shift
            source = next((t for t in trials if t.key == f"alpha-5-seed{seed}"), None)
            trials.append(
                trial(
                    key,
                    round=title,
                    index=index,
                    lr=lr,
                    alpha=alpha,
                    fraction=fraction,
                    seed=seed,
                    state=here,
                    accuracy=_told(here, accuracy, source),
                    source=source.key if here == "free" and source else None,
                    largest_scale=1.81 if alpha > 1 else alpha * 1.02,
                    reason="the process was killed by signal 9" if here == "failed" else None,
                    seconds=None if here == "free" else 190 * fraction * noise.uniform(0.9, 1.1),
                    folder=None if here == "free" else folder / key,
                )
            )

    for k, lr in enumerate((0.8, 1.4, 2.0, 2.6, 3.2)):
        state: State = "diverged" if lost and k == 4 else "trained"
        add("lr1", "lr round 1", k, lr, 0.5, 0.2, state)
    for k, lr in enumerate((0.2, 0.8, 1.4, 2.0, 2.6)):
        state = "failed" if lost and k == 1 else "trained"
        add("lr2", "lr round 2", k, lr, 0.5, 1.0, state)
    for k in (5, 1, 2, 3, 4):
        alpha = SPACE["alphas"][k]
        state = "free" if k in (2, 3, 4) else "trained"
        add("alpha", "alpha round", k, 1.4, alpha, 1.0, state)
    made = study(
        *trials,
        name=name,
        folder=folder,
        settings={"recipe": "cifar10-small", "space": {**SPACE, "seeds": seeds}},
    )
    write_runs(made, epochs)
    return made


def auto_study(
    folder: Path, *, name: str = "cifar10-small-auto", seeds: int = 1, epochs: int = 20
) -> StudyRecord:
    """Plan auto: g/√C of the trunk reaches 6.3, so alpha 8 is free; 4, 2 and 1 branch, 1 falls."""
    finals = {16.0: 67.1, 8.0: 67.1, 4.0: 67.6, 2.0: 67.9, 1.0: 65.8}
    left = {alpha: _left(alpha, epochs) for alpha in (4.0, 2.0, 1.0)}
    trials = []
    for alpha, final in finals.items():
        for seed in range(seeds):
            index, largest = SPACE["alphas"].index(alpha), f"trunk-5-seed{seed}"
            key = f"alpha-{index}-seed{seed}" if alpha < 16 else largest
            share = 1 - left.get(alpha, 0) / epochs
            free = alpha == 8.0
            trials.append(
                trial(
                    key,
                    round="alpha round" if alpha < 16 else "trunk",
                    branch_of="trunk-5" if alpha < 16 else None,
                    index=index,
                    lr="auto",
                    alpha=alpha,
                    seed=seed,
                    state="free" if free else "trained",
                    accuracy=final + 0.3 * seed,
                    source=largest if free else None,
                    largest_scale=min(6.3, 1.05 * alpha),
                    seconds=None if free else 190 * share,
                    share=1.0 if free else share,
                    folder=None if free else folder / key,
                )
            )
    made = study(
        *trials,
        name=name,
        strategy="auto",
        folder=folder,
        settings={"space": {"alphas": SPACE["alphas"], "seeds": seeds}, "margin": 1.0},
        over=True,
    )
    for run in made.trials:
        if run.folder is not None:
            rows = [
                _auto_row(run, e, epochs, left.get(run.alpha or 0)) for e in range(1, epochs + 1)
            ]
            _write_run(run, rows)
    return made


def _scale(done: float) -> float:
    """g/√C of the trunk."""
    return 0.55 + 5.75 * done**1.3


def _left(alpha: float, epochs: int) -> int:
    """The last epoch at whose end the trunk's scale was below alpha."""
    return max(e for e in range(epochs + 1) if _scale(e / epochs) < alpha)


def _auto_row(run: Trial, epoch: int, epochs: int, left: int | None) -> dict[str, Any]:
    """Up to where it leaves the trunk, the trunk's in all but the cap."""
    assert run.alpha is not None
    own = left is not None and epoch > left
    done, root = epoch / epochs, math.sqrt(CLASSES)
    noise = random.Random(f"{run.alpha if own else 'trunk'} {run.seed} {epoch}")
    final = (run.accuracy or 10.0) if own else 67.1 + 0.3 * run.seed
    lr = 0.9 * min(done / 0.1, (1 + math.cos(math.pi * done)) / 2 + 0.01) / (1 + 0.4 * done)
    return {
        "epoch": epoch,
        "step": epoch * 156,
        "lr": lr,
        "train_loss": 1.9 - 0.75 * done**0.8 + noise.gauss(0, 0.01),
        "train_accuracy": 60 * done,
        "val_accuracy": final * (0.45 + 0.55 * done**0.6) + noise.gauss(0, 1.0) * (1 - done),
        "conv_norm": 28.7,
        "head_scale": root * (min(_scale(done), 1.03 * run.alpha) if own else _scale(done)),
        "cap": root * run.alpha,
        "mcbr_train": -0.15 - 0.14 * done,
        "mcbr_val": -0.2 - 0.1 * done,
        "effective_lr": lr / 28.7**2,
        "angular_update": 0.03 * math.sqrt(lr) + noise.gauss(0, 3e-4),
        "implied_decay": 4e-3,
    }


def baseline_study(
    folder: Path, *, name: str = "cifar10-small-bo", points: int = 25, epochs: int = 20
) -> StudyRecord:
    """Bayesian optimisation of lr and weight decay; one point diverges."""
    noise = random.Random(name)
    trials = []
    for k in range(points):
        tight = 0.9 ** min(k, 15)
        lr = 0.8 * math.exp(noise.uniform(-1.38, 1.38) * tight)
        decay = 2e-4 * math.exp(noise.uniform(-2.9, 0.9) * tight)
        off = math.log(lr * decay / 1.6e-4)
        state: State = "diverged" if k == 3 else "trained"
        key = f"point-{k:03}"
        trials.append(
            trial(
                key,
                round="points",
                index=k,
                lr=lr,
                alpha=None,
                weight_decay=decay,
                state=state,
                accuracy=67.9 - 0.5 * off**2 + noise.gauss(0, 0.25) if state == "trained" else None,
                seconds=200.0,
                folder=folder / key,
            )
        )
    settings = {
        "recipe": "cifar10-small",
        "budget": points,
        "lr_min": 0.2,
        "lr_max": 3.2,
        "weight_decay_min": 1e-5,
        "weight_decay_max": 5e-4,
    }
    made = study(
        *trials,
        name=name,
        method="bo-weight-decay",
        strategy="gp",
        folder=folder,
        settings=settings,
    )
    write_runs(made, epochs)
    return made


def write_runs(study: StudyRecord, epochs: int) -> None:
    """``metrics.csv`` and ``result.json`` of every trial that has a folder."""
    for run in study.trials:
        if run.folder is None:
            continue
        rows = [_row(run, e, max(round(epochs * run.fraction), 2)) for e in range(1, epochs + 1)]
        _write_run(run, rows[: max(round(epochs * run.fraction), 2)])


def _write_run(run: Trial, rows: list[dict[str, Any]]) -> None:
    assert run.folder is not None
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (run.folder / "result.json").write_text(json.dumps({"accuracy": run.accuracy}))


def _row(run: Trial, epoch: int, epochs: int) -> dict[str, Any]:
    done = epoch / epochs
    noise = random.Random(f"{run.key} {epoch}")
    final = run.accuracy if run.accuracy is not None else 10.0
    broken = run.state == "diverged" and done > 0.5
    free_scale = 1.8 + 3.9 * (1 - math.exp(-3 * done))
    cap = None if run.alpha is None else run.alpha * math.sqrt(CLASSES)
    shape = 0.45 + 0.55 * done**1.5 if final > 10 else 1.0
    loss = 1.9 - 0.75 * done**0.8 + 0.08 * abs(math.log(run.rate / 1.4)) + noise.gauss(0, 0.01)
    return {
        "epoch": epoch,
        "step": epoch * 156,
        "lr": run.rate * (1 - done),
        "train_loss": float("nan") if broken else loss * (1 + 400 * (final == 10.0) * done),
        "train_accuracy": 100 * shape * 0.7,
        "val_accuracy": None if broken else final * shape + noise.gauss(0, 1.2) * (1 - done),
        "conv_norm": 28.7 + noise.gauss(0, 0.02) if cap else 24 - 14 * done * min(run.rate, 1),
        "head_scale": free_scale if cap is None else min(free_scale, cap * 1.1),
        "cap": cap,
        "mcbr_train": -0.15 - 0.14 * done,
        "mcbr_val": None if broken else -0.2 - 0.1 * done + 0.02 * math.log(run.rate),
        "effective_lr": 1e-3,
        "angular_update": 1e-2,
        "implied_decay": 4e-3,
    }


def _accuracy(lr: float, alpha: float, fraction: float) -> float:
    short = 1 - fraction
    peak = 1.4 + 1.2 * short
    alpha = min(alpha, 2)
    return 67.4 - 14 * short - 2.2 * math.log(lr / peak) ** 2 + 0.5 * math.log2(alpha / 0.5)


def _ended(trial: Trial, at: float) -> Result | None:
    if trial.result is None or trial.ended is not None:
        return trial.result
    return dataclasses.replace(trial.result, ended=at)


def _told(state: State, accuracy: float, source: Trial | None) -> float | None:
    if state == "free":
        assert source is not None
        return source.accuracy
    return accuracy if state == "trained" else None
