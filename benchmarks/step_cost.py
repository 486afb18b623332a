"""What the hook costs: optimizer step, whole training step, memory.

    python benchmarks/step_cost.py [--cpu]

Ratios of alternated runs in one process, one thread: FixNorm (no weight decay, with the hook)
against SGD with weight decay on the same model, and lr="auto" against FixNorm with an lr given.
Beside the fused step, what this machine takes at least for the same step and the two passes over
the weights that any hook after it makes: one that reads them (``sum``), one that writes them
(``mul_``). By wall time; with ``--cpu`` by the processor's, where the machine is busy.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence

import timm
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fixnorm
from timing import alternate, ratio, report


def weight_decay_step(model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    groups = fixnorm.param_groups(model, method="weight-decay", weight_decay=1e-4)
    return nesterov(groups, fused=fused)


def fixnorm_step(model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    optimizer = nesterov(fixnorm.param_groups(model), fused=fused)
    fixnorm.attach(optimizer)
    return optimizer


def auto_step(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = nesterov(fixnorm.param_groups(model), fused=False, lr=1.0)
    fixnorm.attach(optimizer, lr="auto", steps=100_000)
    return optimizer


def two_passes(model: nn.Module) -> Callable[[], None]:
    """A fused step, the weights read once, and written once: no hook after it does with less."""
    groups = fixnorm.param_groups(model)
    optimizer, one = nesterov(groups, fused=True), torch.tensor(1.0)
    weights = [w.detach() for w in groups[0]["params"]]

    def run() -> None:
        optimizer.step()
        for weight in reversed(weights):
            weight.sum()
        for weight in weights:
            weight.mul_(one)

    return run


def nesterov(
    groups: list[dict[str, object]], *, fused: bool, lr: float = 0.1
) -> torch.optim.Optimizer:
    implementation = {"fused": True} if fused else {"foreach": True}
    return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True, **implementation)


def pair(name: str) -> tuple[nn.Module, nn.Module]:
    """The same network, plain and converted."""
    plain, converted = timm.create_model(name), timm.create_model(name)
    converted.load_state_dict(plain.state_dict())
    fixnorm.convert(converted, alpha=1.0, sample=torch.randn(4, 3, 64, 64))
    return plain, converted


def optimizer_steps(name: str, rounds: int, clock: Callable[[], float]) -> None:
    plain, converted = pair(name)
    bare = copy.deepcopy(converted)
    for fused, target in ((False, 1.0), (True, 1.5)):
        # Anew for each: Nesterov by foreach adds the momentum to the gradient itself.
        for p in (p for model in (plain, converted, bare) for p in model.parameters()):
            p.grad = torch.randn_like(p) * 1e-3
        runs = {
            "wd": weight_decay_step(plain, fused=fused).step,
            "fixnorm": fixnorm_step(converted, fused=fused).step,
        } | ({"two passes": two_passes(bare)} if fused else {})
        seconds = alternate(runs, rounds=rounds, clock=clock)
        kind = "fused" if fused else "foreach"
        what = f"{name}: optimizer step against SGD + weight decay ({kind})"
        report(what, ratio(seconds, "fixnorm", "wd"), target)
        if fused:
            least = ratio(seconds, "two passes", "wd")
            print(f"{'  of which the step and two bare passes take':<66} {least:7.3f} ×")


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
) -> Callable[[], None]:
    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return run


def training_steps(name: str, batch: int, rounds: int, clock: Callable[[], float]) -> None:
    plain, converted = pair(name)
    _, automatic = pair(name)
    x, y = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    runs = {
        "wd": training_step(plain, weight_decay_step(plain, fused=False), x, y),
        "fixnorm": training_step(converted, fixnorm_step(converted, fused=False), x, y),
        "auto": training_step(automatic, auto_step(automatic), x, y),
    }
    seconds = alternate(runs, rounds=rounds, clock=clock)
    what = f"{name}: whole training step, batch {batch} at 224 (foreach)"
    report(what, ratio(seconds, "fixnorm", "wd"), 1.01)
    report(f"{what}, lr auto against attach alone", ratio(seconds, "auto", "fixnorm"), 1.02)


class LargestTemporary(TorchDispatchMode):
    """The most bytes of any storage that appears while the mode is on."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = {t.untyped_storage().data_ptr() for t in known}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, t.untyped_storage().nbytes())
        return out


def memory(name: str) -> None:
    _, converted = pair(name)
    optimizer = fixnorm_step(converted, fused=False)
    for p in converted.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    weights = list(converted.parameters())
    hook = next(iter(optimizer._optimizer_step_post_hooks.values()))
    with LargestTemporary(weights) as watch:
        hook(optimizer, (), {})
    largest_weight = max(w.untyped_storage().nbytes() for w in weights)
    report(
        f"{name}: largest temporary of the hook by the largest weight",
        watch.largest / largest_weight,
        1.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--training-rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="by the processor's time")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {options.threads} thread(s), {torch.get_default_dtype()}")
    for name in ("resnet50d", "mobilenetv2_100"):
        optimizer_steps(name, options.rounds, clock)
        memory(name)
    training_steps("resnet50d", 8, options.training_rounds, clock)
    training_steps("mobilenetv2_100", 16, options.training_rounds, clock)


if __name__ == "__main__":
    main()
