"""What the audit costs, against one float64 forward and backward pass at the same input.

python benchmarks/audit_cost.py
"""

from __future__ import annotations

import argparse

import timm
import torch

import fixnorm
from timing import alternate, ratio, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50d")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = timm.create_model(options.model)
    double = timm.create_model(options.model).double().train()
    x = torch.randn(options.batch, 3, options.size, options.size)
    x64 = x.double()

    def forward_and_backward() -> None:
        double.zero_grad()
        double(x64).sum().backward()

    runs = {"audit": lambda: fixnorm.audit(model, x), "pass": forward_and_backward}
    seconds = alternate(runs, rounds=options.rounds)
    what = f"{options.model}: audit against one float64 forward+backward, {tuple(x.shape)}"
    report(what, ratio(seconds, "audit", "pass"), 4.0)


if __name__ == "__main__":
    main()
