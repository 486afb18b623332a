"""Outcomes of experiments with numbers that a person can check."""

from __future__ import annotations

import json
import math
from typing import Any

from fixnorm.evidence.record import Record
from fixnorm.training.checked import checked

LRS, ALPHAS = (0.5, 1.0, 2.0), (0.5, 1.0, 16.0)


def fig1() -> dict[str, Any]:
    epochs = list(range(1, 11))
    falling = [10.0, 9.9, 9.7, 9.5, 9.3, 9.1, 8.9, 8.7, 8.5, 8.3]
    settled = [10.0, 8.0, 7.9, 7.9, 7.8, 7.8, 7.7, 7.7, 7.6, 7.6]
    slow, fast = ({"epoch": epochs, "conv_norm": n} for n in (falling, settled))
    scores = {
        ("weight-decay", 0.4): (70.0, 71.0, 72.0),
        ("weight-decay", 0.8): (60.0, 60.0, 60.0),
        ("algorithm1", 0.8): (50.0, None, 50.0),
        ("algorithm1", 1.4): (70.1, 71.0, 71.9),
    }
    runs = [
        {"weight_decay": decay, "seed": seed, "curve": curve, "steps": 390}
        for decay, curve in ((1e-3, slow), (8e-3, fast))
        for seed in range(3)
    ]
    points = [
        {"method": method, "lr": lr, "seed": seed, "score": score}
        for (method, lr), found in scores.items()
        for seed, score in enumerate(found)
    ]
    return {
        "setting": "toy",
        "weight_decay": 1e-3,
        "default_lr": 0.4,
        "norms": runs,
        "points": points,
    }


def fig2() -> dict[str, Any]:
    def run(method: str, seed: int, score: float, scale: float, risk: float) -> dict[str, Any]:
        cap = 3.5 if method == "fixnorm" else None
        return {
            "method": method,
            "lr": 1.4,
            "alpha": 0.5 if method == "fixnorm" else None,
            "weight_decay": 1e-3 if method == "algorithm1" else 0.0,
            "seed": seed,
            "score": score,
            "mcbr_train": risk - 0.1,
            "mcbr_val": risk,
            "largest_scale": 1.0,
            "seconds": 1.0,
            "curve": {
                "epoch": [1, 2],
                "score": [10.0, score],
                "train_accuracy": [10.0, 90.0],
                "head_scale": [1.0, scale],
                "cap": [cap, cap],
                "mcbr_train": [None, risk - 0.1],
                "mcbr_val": [0.0, risk],
            },
        }

    runs = []
    for seed in range(3):
        runs += [
            run("algorithm1", seed, 28.0 + seed, 4.0, -0.150),
            run("wn-fc", seed, 26.0 + seed + 0.1 * seed, 20.0, -0.100 + 0.001 * seed),
            run("fixnorm", seed, 28.1 + seed, 4.2, -0.160),
        ]
    return {"setting": "toy", "runs": runs}


def fig4() -> dict[str, Any]:
    points = [
        {
            "lr": lr,
            "alpha": alpha,
            "fraction": 1.0,
            "seed": seed,
            "accuracy": 60.0 - 5 * abs(lr - 1) - (alpha == 0.5) + (-0.2 if seed else 0.2),
            "largest_scale": 1.0,
            "free": False,
        }
        for lr in LRS
        for alpha in ALPHAS
        for seed in range(2)
    ]
    short = {**points[0], "fraction": 0.2, "accuracy": 99.0}
    return {"landscapes": [{"name": "toy", "method": "fixnorm", "points": [*points, short]}]}


def search(kind: str, scores: list[float], *, cost: int = 3) -> dict[str, Any]:
    def tried(score: float | None, *, free: bool = False) -> dict[str, Any]:
        return {
            "round": "points",
            "lr": 0.8,
            "second": 1.0,
            "fraction": 1.0,
            "score": score,
            "free": free,
        }

    tries = [tried(None), tried(60.0), tried(64.0)]
    if kind == "alpha":
        first = {**tries[1], "round": "lr round 1", "second": 0.5}
        tries = [first, {**tries[2], "round": "alpha round", "free": True}]
    return {
        "kind": kind,
        "lr": 0.8,
        "second": 1.0 if kind == "alpha" else 5e-4,
        "score": 64.0,
        "cost": cost,
        "tried": tries,
        "scores": scores,
    }


def table1() -> dict[str, Any]:
    searches = [
        {"method": "weight-decay", **search("weight_decay", [60.0, 62.0], cost=25)},
        {"method": "weight-decay", **search("weight_decay", [61.0, 63.0], cost=25)},
        {"method": "fixnorm", **search("alpha", [61.0, 63.0], cost=8)},
        {"method": "fixnorm", **search("alpha", [62.0, 64.0], cost=9)},
    ]
    setting = {
        "setting": "toy",
        "recipe": "digits",
        "metric": "accuracy (%)",
        "paper": 78.62,
        "searches": searches,
        "reference": {"lr": 0.4, "weight_decay": 1e-3, "scores": [58.0, 59.0]},
    }
    return {"settings": [setting]}


def table2() -> dict[str, Any]:
    model = {
        "setting": "ResNet-8",
        "recipe": "cifar10-quick",
        "model": "resnet8",
        "paper": 73.2,
        "paper_reference": 72.04,
        "default": {"lr": 0.4, "second": 1e-3, "cost": 0.0, "scores": [50.0, 51.0, 52.0]},
        "tuned_weight_decay": search("weight_decay", [55.0, 56.0, 57.0]),
        "tuned_fixnorm": search("alpha", [55.0, 55.0, 55.0]),
    }
    return {"models": [model]}


def dense(metric: str) -> dict[str, Any]:
    runs = [
        {
            "setting": "toy",
            "recipe": "toy-small",
            "method": method,
            "seed": seed,
            "lr": 0.1,
            "alpha": 0.5 if method == "fixnorm" else None,
            "weight_decay": 0.0 if method == "fixnorm" else 5e-4,
            "score": 20.0 + seed + (1 if method == "fixnorm" else 0),
            "mcbr_val": -0.5,
            "largest_scale": 1.0,
            "seconds": 1.0,
            "paper": 79.4 if method == "fixnorm" else None,
        }
        for method in ("weight-decay", "fixnorm")
        for seed in range(3)
    ]
    return {"metric": metric, "runs": runs}


def peers() -> dict[str, Any]:
    names = ("SGD + weight decay", "AdamW", "SGDP", "norm fixed per layer", "FixNorm")
    rows = [
        {"peer": name, **search("alpha" if k > 2 else "weight_decay", [20.0 + k, 21.0 + k])}
        for k, name in enumerate(names)
    ]
    step = {
        name: {"step_time": 1.0 + k / 10, "bytes_per_weight": 4.0} for k, name in enumerate(names)
    }
    return {
        "setting": "toy",
        "recipe": "digits",
        "metric": "accuracy (%)",
        "budget": 11,
        "step": {"model": "resnet50d", "rounds": 15, "threads": 1, "peers": step},
        "rows": rows,
    }


def forgiveness() -> dict[str, Any]:
    """For each doubling: 2 % of FixNorm's lr, ½ % of alpha; 4 % of weight decay's lr and of λ."""
    lrs, alphas, decays = (0.25, 0.5, 1.0, 2.0, 4.0), (0.5, 1.0, 2.0), (5e-4, 1e-3, 2e-3)

    def cell(lr: float | None, level: float, score: float) -> dict[str, Any]:
        return {"lr": lr, "level": level, "scores": [score - 0.1, score + 0.1]}

    def grids(best: float, *, auto: bool) -> list[dict[str, Any]]:
        def off(lr: float) -> float:
            return abs(math.log2(lr / best))

        fixed = [
            cell(lr, a, 60 - 2 * off(lr) - abs(math.log2(a)) / 2) for lr in lrs for a in alphas
        ]
        decayed = [
            cell(lr, d, 60 - 4 * off(lr) - 4 * abs(math.log2(d / 1e-3)))
            for lr in lrs
            for d in decays
        ]
        by_rule = [cell(None, a, 59.5 - abs(math.log2(a)) / 2) for a in alphas]
        return [
            {"side": "fixnorm", "cells": fixed},
            *([{"side": "auto", "cells": by_rule}] if auto else []),
            {"side": "weight-decay", "cells": decayed},
        ]

    return {
        "landscapes": [{"name": "toy", "recipe": "digits", "grids": grids(1.0, auto=False)}],
        "settings": [
            {"name": f"setting {k}", "recipe": "digits", "grids": grids(best, auto=True)}
            for k, best in enumerate((0.5, 1.0, 1.0, 2.0))
        ],
    }


OUTCOMES: dict[str, dict[str, Any]] = {
    "fig1": fig1(),
    "fig2": fig2(),
    "fig4": fig4(),
    "table1": table1(),
    "table2": table2(),
    "table3": dense("mIoU (%)"),
    "table4": dense("AP (%)"),
    "peers": peers(),
    "forgiveness": forgiveness(),
}


def record(name: str) -> dict[str, Any]:
    return {
        "experiment": name,
        "scale": "small",
        "command": f"fixnorm reproduce {name}",
        "commit": None,
        "trained_at": ["0123456789abcdef"],
        "versions": {"torch": "2"},
        "hardware": ["a <machine>"],
        "recipes": ["digits"],
        "trainings": 9,
        "cost": 9.0,
        "seconds": 60,
        "outcome": OUTCOMES[name],
    }


def stored_record(name: str) -> Record:
    return checked(json.dumps(record(name)), Record)
