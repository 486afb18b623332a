"""The four methods on one recipe, several seeds each, one after another.

    python benchmarks/methods.py cifar10-small --data cifar10 --out runs/methods

Trainings that are done are not done again, so the same command goes on after an interruption.
Prints a table (mean ± standard deviation over seeds), with what a predictor scores that does not
look at the image, and writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, cast, get_args

from fixnorm import recipes
from fixnorm.methods import MethodName
from fixnorm.training import RunOptions, changed, train
from fixnorm.training.tasks import METRICS
from fixnorm.training.view import ProgressView
from trivial import trivial

NOT_KEPT = {"recipe", "diverged", "epochs", "processes"}


def run_all(
    name: str, data: Path | None, out: Path, seeds: dict[MethodName, int], fields: dict[str, str]
) -> list[dict[str, Any]]:
    """All seeds of each method, the first seed of all methods first."""
    results = []
    for seed in range(max(seeds.values())):
        for method in [method for method, count in seeds.items() if seed < count]:
            recipe = changed(recipes.get(name, method), **fields, seed=seed)
            found = train(
                recipe,
                data=data,
                out=out / f"{method}-{seed}",
                options=RunOptions(tensorboard=False),
                view=ProgressView(),
            )
            results.append({key: found[key] for key in found.keys() - NOT_KEPT})
    return results


def spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} ± {deviation:.2f}"


def table(results: list[dict[str, Any]]) -> str:
    metric = METRICS[results[0]["metric"]]
    lines = [f"| method | setting | {metric.label} | MCBR val | seconds |", "|---|---|---|---|---|"]
    for method in dict.fromkeys(r["method"] for r in results):
        runs = [r for r in results if r["method"] == method]
        first = runs[0]
        setting = f"lr {first['lr']}"
        if first["alpha"] is not None:
            setting += f", alpha {first['alpha']:g}"
        if first["weight_decay"]:
            setting += f", λ {first['weight_decay']:g}"
        score = spread([r[metric.name] for r in runs])
        mcbr = spread([r["mcbr_val"] for r in runs])
        seconds = statistics.median(r["seconds"] for r in runs)
        lines.append(f"| `{method}` | {setting} | {score} | {mcbr} | {seconds:.0f} |")
    return "\n".join(lines)


def asked(text: str) -> tuple[MethodName, int | None]:
    """``fixnorm=3`` as a method and its number of seeds."""
    method, equals, count = text.partition("=")
    if method not in get_args(MethodName) or (equals and not (count.isdecimal() and int(count))):
        raise argparse.ArgumentTypeError(f"METHOD or METHOD=SEEDS but got {text!r}")
    return cast(MethodName, method), int(count) if equals else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--methods",
        nargs="+",
        type=asked,
        default=[asked(method) for method in get_args(MethodName)],
        metavar="METHOD[=SEEDS]",
        help="default: all, with --seeds seeds each",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        type=lambda text: tuple(text.split("=", 1)),
        default=[],
        metavar="FIELD=VALUE",
        help="fields of the recipe, for every method",
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    seeds = {method: count or options.seeds for method, count in options.methods}
    fields = dict(options.set)
    results = run_all(options.recipe, options.data, options.out, seeds, fields)
    floor = trivial(recipes.get(options.recipe), options.data)
    print(table(results))
    print(f"without looking at the image: {floor:.2f}")
    if options.json is not None:
        told = " ".join(f"{method}={count}" for method, count in seeds.items())
        command = (
            f"python benchmarks/methods.py {options.recipe} --data DIR --out RUNS --methods {told}"
        )
        if fields:
            command += " --set " + " ".join(f"{name}={value}" for name, value in fields.items())
        content = {
            "recipe": options.recipe,
            "command": command,
            "trivial": round(floor, 3),
            "runs": results,
        }
        options.json.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
