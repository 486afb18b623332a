"""The passes behind the audit: a prepared copy of the model, run forward and backward.

Two forward and three backward passes measure all weights at once; :mod:`fixnorm.roles` says why
this is enough. They take the memory of one: a gradient is reduced to its number as soon as it is
there, and of what a layer gives and gets only a digest is kept.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from fixnorm.internals import MODULE_PARTS, tree_leaves, tree_map
from fixnorm.norm import frobenius

Run = Callable[[nn.Module], Any]
"""Runs the model it is given and returns its output."""

# Two gradients are one and the same up to rounding in float64.
_CONSTANT = 1e-9


@contextmanager
def prepared_copy(model: nn.Module) -> Iterator[nn.Module]:
    """A copy prepared for the measurement, with the world outside left untouched.

    Inside, the model itself must not run: see :class:`RanTheOriginal`.
    """
    devices = {p.device for p in model.parameters()}
    cuda = [d for d in devices if d.type == "cuda"]
    default_dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=cuda), torch.enable_grad():
        twin = _copied(model)
        if any(d.type == "mps" for d in devices):
            twin = twin.cpu()  # no float64 there
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        try:
            with _refusing_to_run(model, instead_of=twin):
                yield _prepare(twin)
        finally:
            torch.set_default_dtype(default_dtype)


class RanTheOriginal(ValueError):
    """A layer of the model was called where the copy was to be run.

    A callable that takes the model from around it (``sample=lambda m: model(x)``) would measure
    nothing and move the running statistics of the model's norms.
    """


@contextmanager
def _refusing_to_run(model: nn.Module, *, instead_of: nn.Module) -> Iterator[None]:
    """Raise as soon as a module of the model runs that is not the copy's as well."""
    originals = {id(module) for module in model.modules()}
    originals -= {id(module) for module in instead_of.modules()}

    def refuse(module: nn.Module, _: Any) -> None:
        if id(module) in originals:
            raise RanTheOriginal(
                "the callable ran the model itself, not the copy it was given: "
                "write sample=lambda m: m(x)"
            )

    handle = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # whatever an attribute of the model raises
        raise ValueError(
            f"{type(model).__name__} cannot be copied, and the audit runs a copy: "
            f"{_uncopiable(model)}{type(error).__name__}: {error}. Take it off the model until "
            "after convert, or give its class a __deepcopy__"
        ) from error


def _uncopiable(model: nn.Module) -> str:
    """The attribute that cannot be copied, if it can be told."""
    for name, module in model.named_modules():
        for own, value in vars(module).items():
            if own in MODULE_PARTS:
                continue
            try:
                copy.deepcopy(value)
            except Exception:
                return f"attribute {f'{name}.{own}' if name else own}, "
    return ""


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
        # Not by a hook: torch leaves its fast paths when a module has one.
        module.__dict__["forward"] = _in_double(module, module.forward)
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


def _in_double(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The module's forward, with its inputs cast and brought to the module's device."""
    parameter = next(module.parameters(), None)
    if parameter is None:
        return forward
    device = parameter.device

    def cast(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(device, torch.float64 if leaf.is_floating_point() else leaf.dtype)

    @functools.wraps(forward)
    def in_double(*args: Any, **kwargs: Any) -> Any:
        return forward(*tree_map(cast, args), **tree_map(cast, kwargs))

    return in_double


class Measured:
    """What the passes found, by parameter name of the copy."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.heads: set[str] = set()
        self.called: set[str] = set()
        """Names of modules."""
        self.unused: set[str] = set()


def measure(twin: nn.Module, run: Run) -> Measured:
    """Two forward and three backward passes, whatever the number of weights."""
    watch, euler = _LayerWatch(twin), _Euler(twin)
    try:
        outputs = watch.forward(run)
        first = [torch.randn_like(output) for output in outputs]
        other = [torch.randn_like(output) for output in outputs]
        euler.backward(outputs, other, more_to_come=True)
        watch.listen()
        euler.backward(outputs, first)
        del outputs, other  # and with them the graph
        _move(twin)
        watch.compare()
        outputs = watch.forward(run)
        watch.listen()
        measured = Measured()
        if [o.shape for o in outputs] == [u.shape for u in first]:
            euler.backward(outputs, first)
            del outputs
            for name, module, inputs in watch.constant():
                if _is_linear_in_weight(module, inputs):
                    measured.heads |= {
                        f"{name}.{own}" if name else own
                        for own, p in module.named_parameters(recurse=False)
                        if p.ndim >= 2
                    }
        measured.figures, measured.called = euler.figures, watch.called
        measured.unused = euler.unused()
    finally:
        watch.remove()
        euler.remove()
    return measured


class _Euler:
    """The largest number seen for each weight; a gradient goes as soon as it has given its own."""

    def __init__(self, twin: nn.Module) -> None:
        self.figures: dict[str, float] = {}
        self._weights = {
            name: weight
            for name, weight in twin.named_parameters()
            if weight.is_floating_point() and weight.ndim >= 2
        }
        self._not_finite: str | None = None
        self._handles = [
            weight.register_post_accumulate_grad_hook(functools.partial(self._reduce, name))
            for name, weight in self._weights.items()
        ]

    def backward(
        self, outputs: list[Tensor], u: list[Tensor], *, more_to_come: bool = False
    ) -> None:
        torch.autograd.backward(
            outputs, u, retain_graph=more_to_come, inputs=list(self._weights.values())
        )
        if self._not_finite is not None:
            raise ValueError(
                f"the gradient in {self._not_finite} is not finite in training mode: "
                "pass a sample of ordinary size, with four examples or more"
            )

    def unused(self) -> set[str]:
        """Weights that no gradient came to."""
        return self._weights.keys() - self.figures.keys()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _reduce(self, name: str, weight: Tensor) -> None:
        gradient, weight.grad = weight.grad, None
        assert gradient is not None
        size = frobenius(gradient) * frobenius(weight.detach())
        if not torch.isfinite(size):
            self._not_finite = self._not_finite or name
        elif size > 0:
            figure = float(torch.sum(gradient * weight.detach()).abs() / size)
            self.figures[name] = max(figure, self.figures.get(name, 0.0))


Inputs = tuple[tuple[Any, ...], dict[str, Any]]


class _LayerWatch:
    """Of each layer that owns a weight: ∂F/∂y of what comes out, then what went in.

    The first run leaves digests of ∂F/∂y; the second keeps the inputs of those layers alone whose
    digests are the same again.
    """

    def __init__(self, twin: nn.Module) -> None:
        self.twin = twin
        self.called: set[str] = set()
        self._inputs: dict[str, Inputs] = {}
        self._earlier: dict[str, list[Tensor]] = {}
        self._digests: dict[str, list[Tensor]] = {}
        self._listening = self._comparing = False
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
        self._listening = False
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

    def compare(self) -> None:
        """From now on look for what has not changed."""
        self._earlier, self._digests, self._comparing = self._digests, {}, True

    def constant(self) -> list[tuple[str, nn.Module, Inputs]]:
        """Layers with the same ∂F/∂y as before, though every parameter has changed."""
        return [
            (name, self._modules[name], inputs)
            for name, inputs in self._inputs.items()
            if len(self._digests.get(name, [])) == len(self._earlier[name])
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        # The tensors' hooks know this object: a cycle through autograd, which nobody collects.
        self._inputs, self._earlier, self._digests = {}, {}, {}

    def _hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.called.add(name)
            if name in self._earlier:
                self._inputs[name] = (args, kwargs)
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(functools.partial(self._hear, name))

        return hook

    def _hear(self, name: str, gradient: Tensor) -> None:
        if not self._listening:
            return
        heard = self._digests.setdefault(name, [])
        heard.append(_digest(gradient))
        if self._comparing and not _same(self._earlier.get(name, []), heard):
            self._inputs.pop(name, None)


@torch.no_grad()
def _digest(gradient: Tensor) -> Tensor:
    """Norm, sum and some values: the same up to rounding only if the gradient is."""
    flat = gradient.reshape(-1)
    some = flat[:: max(1, flat.numel() // 256)]
    return torch.cat([torch.stack([flat.norm(), flat.sum()]), some])


def _same(earlier: list[Tensor], later: list[Tensor]) -> bool:
    """Whether what was heard so far is what was heard before."""
    return len(later) <= len(earlier) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=_CONSTANT, atol=_CONSTANT * float(a[0]))
        for a, b in zip(earlier, later, strict=False)
    )


@torch.no_grad()
def _is_linear_in_weight(module: nn.Module, inputs: Inputs) -> bool:
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
