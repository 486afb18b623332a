"""The passes behind the audit: a prepared copy of the model, run forward and backward.

Two forward and three backward passes measure all weights at once; :mod:`fixnorm.roles` says why
this is enough.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from fixnorm.norm import frobenius

Run = Callable[[nn.Module], Any]
"""Runs the model it is given and returns its output."""

# Two gradients are one and the same up to rounding in float64.
_CONSTANT = 1e-9


@contextmanager
def prepared_copy(model: nn.Module) -> Iterator[nn.Module]:
    """A copy prepared for the measurement, with the world outside left untouched."""
    devices = {p.device for p in model.parameters()}
    cuda = [d for d in devices if d.type == "cuda"]
    default_dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=cuda), torch.enable_grad():
        try:
            twin = copy.deepcopy(model)
        except RuntimeError as error:
            raise ValueError(f"the model cannot be copied (copy.deepcopy): {error}") from error
        if any(d.type == "mps" for d in devices):
            twin = twin.cpu()  # no float64 there
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        try:
            yield _prepare(twin)
        finally:
            torch.set_default_dtype(default_dtype)


def _prepare(twin: nn.Module) -> nn.Module:
    twin.double().train()
    for module in twin.modules():
        if not any(True for _ in module.parameters()) and not any(True for _ in module.buffers()):
            module.eval()  # dropout and stochastic depth have no state of their own
        if isinstance(module.__dict__.get("eps"), float):
            module.__dict__["eps"] = 1e-30
    for parameter in twin.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    _randomise(twin)
    for module in twin.modules():  # a callable may run parts of the model by themselves
        module.register_forward_pre_hook(_to_double, with_kwargs=True)
    return twin


@torch.no_grad()
def _randomise(twin: nn.Module) -> None:
    """Take biases and affines off their special values, and give zero weights a direction."""
    for parameter in twin.parameters():
        if parameter.ndim < 2:
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
        elif not parameter.any():
            nn.init.normal_(parameter, std=0.02)


@torch.no_grad()
def _move(twin: nn.Module) -> None:
    """Change every parameter, so that whatever depends on one of them changes."""
    _randomise(twin)
    for parameter in twin.parameters():
        if parameter.ndim >= 2:
            parameter.mul_(1 + 0.5 * torch.rand_like(parameter))


def _to_double(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    parameter = next(module.parameters(), None)
    if parameter is None:
        return args, kwargs
    device = parameter.device

    def cast(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(device, torch.float64 if leaf.is_floating_point() else leaf.dtype)

    return tree_map(cast, args), tree_map(cast, kwargs)


class Measured:
    """What the passes found, by parameter name of the copy."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.heads: set[str] = set()
        self.called: set[str] = set()


def measure(twin: nn.Module, run: Run) -> Measured:
    """Two forward and three backward passes, whatever the number of weights."""
    watch = _LayerWatch(twin)
    weights = {n: p for n, p in twin.named_parameters() if p.is_floating_point() and p.ndim >= 2}
    measured = Measured()
    try:
        outputs = watch.forward(run)
        first = [torch.randn_like(output) for output in outputs]
        other = [torch.randn_like(output) for output in outputs]
        _euler(weights, outputs, other, measured, more_to_come=True)
        watch.listen()
        _euler(weights, outputs, first, measured)
        before = watch.heard()
        del outputs
        _move(twin)
        outputs = watch.forward(run)
        watch.listen()
        if [o.shape for o in outputs] == [u.shape for u in first]:
            _euler(weights, outputs, first, measured)
            for name, module in watch.constant(before):
                if _is_linear_in_weight(module, watch.inputs[name]):
                    measured.heads |= {
                        f"{name}.{own}" if name else own
                        for own, p in module.named_parameters(recurse=False)
                        if p.ndim >= 2
                    }
        measured.called = set(watch.inputs)
    finally:
        watch.remove()
    return measured


def _euler(
    weights: dict[str, nn.Parameter],
    outputs: list[Tensor],
    u: list[Tensor],
    measured: Measured,
    *,
    more_to_come: bool = False,
) -> None:
    """One backward pass: keep the largest figure seen for each weight."""
    gradients = torch.autograd.grad(
        outputs, list(weights.values()), u, retain_graph=more_to_come, allow_unused=True
    )
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        if gradient is None:
            continue
        size = frobenius(gradient) * frobenius(weight.detach())
        if not torch.isfinite(size):
            raise ValueError(
                f"the gradient in {name} is not finite in training mode: "
                "pass a sample of ordinary size, with four examples or more"
            )
        if size > 0:
            figure = float(torch.sum(gradient * weight.detach()).abs() / size)
            measured.figures[name] = max(figure, measured.figures.get(name, 0.0))


class _LayerWatch:
    """Records what goes into the layers that own a weight, and ∂F/∂y for what comes out."""

    def __init__(self, twin: nn.Module) -> None:
        self.twin = twin
        self.inputs: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._gradients: dict[str, list[Tensor]] = {}
        self._listening = False
        self._modules = {
            name: module
            for name, module in twin.named_modules(remove_duplicate=False)
            if any(p.ndim >= 2 for p in module.parameters(recurse=False))
        }
        self._handles = [
            module.register_forward_hook(self._hook(name), with_kwargs=True)
            for name, module in self._modules.items()
        ]

    def forward(self, run: Run) -> list[Tensor]:
        """Run the model; its outputs that depend on parameters."""
        self._gradients, self._listening = {}, False
        torch.manual_seed(1)
        outputs = [
            leaf
            for leaf in _leaves(run(self.twin))
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.requires_grad
        ]
        if not outputs:
            raise ValueError(
                "the model's output holds no tensor that depends on its parameters; pass a "
                "callable that returns logits or losses: sample=lambda m: m(images, targets)"
            )
        return outputs

    def listen(self) -> None:
        self._listening = True

    def heard(self) -> dict[str, list[Tensor]]:
        return self._gradients

    def constant(self, before: dict[str, list[Tensor]]) -> Iterator[tuple[str, nn.Module]]:
        """Layers with the same ∂F/∂y as before, though every parameter has changed."""
        for name, earlier in before.items():
            later = self._gradients.get(name, [])
            if len(earlier) == len(later) and all(
                a.shape == b.shape and torch.allclose(a, b, rtol=_CONSTANT, atol=0)
                for a, b in zip(earlier, later, strict=True)
            ):
                yield name, self._modules[name]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        # The tensors' hooks know this object: a cycle through autograd, which nobody collects.
        self.inputs, self._gradients = {}, {}

    def _hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.inputs[name] = (args, kwargs)
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(keep)

        def keep(gradient: Tensor) -> None:
            if self._listening:
                self._gradients.setdefault(name, []).append(gradient)

        return hook


@torch.no_grad()
def _is_linear_in_weight(module: nn.Module, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    """Whether y(2W) − y(0) = 2·(y(W) − y(0)) and y(W) ≠ y(0), for all weights at once."""
    args, kwargs = inputs
    weights = [p for p in module.parameters(recurse=False) if p.ndim >= 2]
    originals = [w.clone() for w in weights]

    def at(scale: float) -> Tensor:
        for weight, original in zip(weights, originals, strict=True):
            weight.copy_(original * scale)
        output = module.forward(*args, **kwargs)
        assert isinstance(output, Tensor)
        return output.clone()

    zero, one, two = at(0.0), at(1.0), at(2.0)
    change = one - zero
    if not torch.isfinite(change).all():  # a weight that is divided by its norm
        return False
    return bool(change.any()) and torch.allclose(
        two - zero, 2 * change, rtol=1e-9, atol=1e-9 * float(change.abs().max())
    )


def _leaves(output: Any) -> list[Any]:
    """Tensors in nested containers, also in dataclasses such as model outputs."""
    if is_dataclass(output) and not isinstance(output, type):
        output = [getattr(output, field.name) for field in fields(output)]
    return tree_leaves(output)
