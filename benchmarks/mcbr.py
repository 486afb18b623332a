"""What MCBR costs: `fixnorm.mcbr` against the formula as written and against bare matrix products.

    python benchmarks/mcbr.py                    # B = 1024, C = 1000, d = 2048 on one thread
    python benchmarks/mcbr.py --threads 8 --json

The three are timed in turn, again and again, in one run (the two short ones five times a turn);
the ratios are those of the fastest times, which other work on the machine disturbs least.
The formula makes a B×C×d tensor of differences, 8 GB in float32 at this size, so it runs in slices
of B, 64 samples at a time (0.5 GB). From 16 to 256 samples a slice its time is the same, so this is
the time of the whole; slices of one sample, which a cache holds, are faster (try `--slice 1`), but
are no B×C×d formula any more. `torch.nn.functional.cosine_similarity` on the same differences is
several times slower than the projection and norm written out here.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable

import torch
from torch import Tensor

from fixnorm.mcbr import mean_cross_boundary_risk

FORMULA_TARGET = 0.02
PRODUCTS_TARGET = 3.0


def formula(features: Tensor, labels: Tensor, weight: Tensor, *, samples: int) -> Tensor:
    """1/(C−1) · Σ_{j≠k} cos(x, W_j − W_k), float32, a slice of the batch at a time."""
    total = torch.zeros(())
    for start in range(0, len(features), samples):
        x, k = features[start : start + samples], labels[start : start + samples]
        difference = weight[None] - weight[k][:, None]
        projection = torch.einsum("bcd,bd->bc", difference, x)
        cosines = projection / (difference.norm(dim=2) * x.norm(dim=1, keepdim=True))
        total += cosines.scatter_(1, k[:, None], 0.0).sum()
    return total / (len(features) * (len(weight) - 1))


def products(features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """X·Wᵀ and W·Wᵀ, the least that any exact MCBR multiplies."""
    return features @ weight.T, weight @ weight.T


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="time MCBR against its formula")
    parser.add_argument("--batch", type=int, default=1024, help="B (default: %(default)s)")
    parser.add_argument("--classes", type=int, default=1000, help="C (default: %(default)s)")
    parser.add_argument("--features", type=int, default=2048, help="d (default: %(default)s)")
    parser.add_argument("--slice", type=int, default=64, help="samples at a time in the formula")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default: 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args()
    B, C, d = arguments.batch, arguments.classes, arguments.features
    if min(B, d, arguments.slice, arguments.repeats, arguments.threads) < 1 or C < 2:
        parser.error("--classes must be at least 2 and every other number at least 1")

    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(B, d, generator=generator)
    weight = torch.randn(C, d, generator=generator)
    labels = torch.randint(C, (B,), generator=generator)

    runs: dict[str, Callable[[], object]] = {
        "formula": lambda: formula(features, labels, weight, samples=arguments.slice),
        "mcbr": lambda: mean_cross_boundary_risk(features, labels, weight),
        "products": lambda: products(features, weight),
    }
    ours = mean_cross_boundary_risk(features, labels, weight)
    theirs = formula(features, labels, weight, samples=arguments.slice)
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-4, atol=1e-6)
    products(features, weight)

    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.repeats):
        for name, run in runs.items():
            times[name] += [seconds(run) for _ in range(1 if name == "formula" else 5)]
    best = {name: min(values) for name, values in times.items()}
    to_formula = best["mcbr"] / best["formula"]
    to_products = best["mcbr"] / best["products"]

    if arguments.json:
        print(
            json.dumps(
                {
                    "B": B,
                    "C": C,
                    "d": d,
                    "slice": arguments.slice,
                    "threads": arguments.threads,
                    "torch": torch.__version__,
                    "machine": platform.machine(),
                    "seconds": times,
                    "to_formula": to_formula,
                    "to_formula_target": FORMULA_TARGET,
                    "to_products": to_products,
                    "to_products_target": PRODUCTS_TARGET,
                }
            )
        )
        return
    print(f"MCBR, B = {B}, C = {C}, d = {d}; torch {torch.__version__}, {platform.machine()}")
    print(f"{arguments.threads} thread(s), fastest of {arguments.repeats} alternated rounds")
    print(f"  B×C×d formula, {arguments.slice} samples a slice  {best['formula']:9.4f} s")
    print(f"  X·Wᵀ plus W·Wᵀ, float32             {best['products']:9.4f} s")
    print(f"  mean_cross_boundary_risk            {best['mcbr']:9.4f} s")
    print(f"share of the formula's time:   {to_formula:8.2%}   (target ≤ {FORMULA_TARGET:.0%})")
    print(f"times the matrix products:     {to_products:8.2f}×  (target ≤ {PRODUCTS_TARGET:g}×)")


if __name__ == "__main__":
    main()
