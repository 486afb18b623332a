"""The paper's algorithms, transcribed line by line and slow on purpose.

The fast path (:func:`fixnorm.convert`, :func:`fixnorm.attach` and a torch optimizer) is held equal
to these functions step by step in the tests. Letters are the paper's: weights ``W``, velocity
``V``, momentum ``mu``, schedule multiplier ``eta``, classifier scale ``g``.

Parameters are a dict by name. The classifier's are ``HEAD.weight``, ``HEAD.bias`` (if it has one)
and ``HEAD.g`` (WN-FC and FixNorm-FC); ``features(W, x)`` computes what comes before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, NotRequired, TypedDict, Unpack

import torch
from torch import Tensor

__all__ = [
    "AngleRule",
    "SphereRule",
    "State",
    "algorithm_1",
    "algorithm_1_fixnorm_fc",
    "algorithm_1_wn_fc",
    "fc",
    "fixnorm_conv",
    "fixnorm_fc",
    "matrix_scope",
    "own_step",
    "relative_step",
    "weight_decay_training",
    "wn_fc",
]

Weights = dict[str, Tensor]
Features = Callable[[Weights, Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]


class SphereRule(NamedTuple):
    """A learning rate that is not given but follows from the sphere (our addition)."""

    c: float
    p: float
    T: int

    def lr(self, R: Tensor, gradients: Sequence[Iterable[Tensor]], mu: float) -> Tensor:
        """lr_t = c · (1 − μ) · R² / (T^p · √(mean_{s≤t} ‖R·∇L_s‖²)), of the gradients up to now."""
        squares = [norm(R * g for g in dL) ** 2 for dL in gradients]
        rms = torch.sqrt(torch.stack(squares).mean())
        lr: Tensor = self.c * (1 - mu) * R**2 / (self.T**self.p * rms)
        return lr


class AngleRule(NamedTuple):
    """Learning rates of scope matrix that follow from the length of the training (ours)."""

    c: float
    c_plain: float
    T: int

    def angle(self) -> float:
        """c / √T, of the matrices."""
        return self.c / math.sqrt(self.T)

    def lr(self) -> float:
        """c_plain / √T, of all else."""
        return self.c_plain / math.sqrt(self.T)


class Momentum(TypedDict):
    """What every algorithm says of its steps: V ← μV + ∇L, W ← W − lr·η_t·V."""

    lr: float | SphereRule | AngleRule
    eta: Callable[[int], float]
    mu: float
    nesterov: NotRequired[bool]


class State(NamedTuple):
    """W_{t+1} and V_{t+1}, after a step."""

    W: Weights
    V: Weights


def norm(tensors: Iterable[Tensor]) -> Tensor:
    """‖·‖₂ of many tensors as one vector."""
    return torch.sqrt(sum(((t * t).sum() for t in tensors), start=torch.zeros(())))


def fc(x: Tensor, W: Tensor) -> Tensor:
    """FC(x; W) = xᵀW, with W stored as torch stores it, (C, d)."""
    return x @ W.T


def wn_fc(x: Tensor, W: Tensor, g: Tensor) -> Tensor:
    """WN-FC(x; W, g) = xᵀW / ‖W‖ × g."""
    return x @ W.T / norm([W]) * g


def capped(g: Tensor, bound: float) -> Tensor:
    """min(g, bound) of the paper for g > 0, and its mirror image for g < 0 (our addition)."""
    limit = torch.full_like(g, bound)
    return torch.maximum(torch.minimum(g, limit), -limit)


def fixnorm_fc(x: Tensor, W: Tensor, g: Tensor, alpha: float) -> Tensor:
    """FixNorm-FC(x; W, g, α) = xᵀW / ‖W‖ × min(g, α√#class)."""
    return x @ W.T / norm([W]) * capped(g, alpha * math.sqrt(W.shape[0]))


def fixnorm_conv(x: Tensor, W: Tensor, g: Tensor, alpha: float) -> Tensor:
    """FixNorm-Conv(x; W, g, α) = Conv(x, W) / ‖W‖ × min(g, α√c_out)."""
    scale = capped(g, alpha * math.sqrt(W.shape[0]))
    return torch.nn.functional.conv2d(x, W) / norm([W]) * scale


def weight_decay_training(
    features: Features,
    W: Weights,
    loss: Loss,
    batches: Batches,
    *,
    head: str,
    lambda_: float,
    decayed: Collection[str],
    **sgd: Unpack[Momentum],
) -> Iterator[State]:
    """Training with weight decay λ on all weights; no norm is fixed."""

    def objective(W: Weights, x: Tensor, y: Tensor) -> Tensor:
        logits = fc(features(W, x), W[f"{head}.weight"]) + _bias(W, head)
        return loss(logits, y) + 0.5 * lambda_ * norm(W[name] for name in decayed) ** 2

    return _train(objective, W, batches, fixed=(), **sgd)


def algorithm_1(
    features: Features,
    W: Weights,
    loss: Loss,
    batches: Batches,
    *,
    head: str,
    lambda_fc: float,
    conv: Collection[str],
    **sgd: Unpack[Momentum],
) -> Iterator[State]:
    """Algorithm 1: the norm of the convolutions is fixed, the classifier is decayed by λ_FC."""

    def objective(W: Weights, x: Tensor, y: Tensor) -> Tensor:
        logits = fc(features(W, x), W[f"{head}.weight"]) + _bias(W, head)
        return loss(logits, y) + 0.5 * lambda_fc * norm([W[f"{head}.weight"]]) ** 2  # line 3

    return _train(objective, W, batches, fixed=conv, **sgd)


def algorithm_1_wn_fc(
    features: Features,
    W: Weights,
    loss: Loss,
    batches: Batches,
    *,
    head: str,
    conv: Collection[str],
    **sgd: Unpack[Momentum],
) -> Iterator[State]:
    """Algorithm 1@WN-FC: the classifier is WN-FC, and fixed along with the convolutions."""

    def objective(W: Weights, x: Tensor, y: Tensor) -> Tensor:
        z = wn_fc(features(W, x), W[f"{head}.weight"], W[f"{head}.g"])
        return loss(z + _bias(W, head), y)

    conv_and_fc = [*conv, f"{head}.weight"]
    return _train(objective, W, batches, fixed=conv_and_fc, **sgd)


def algorithm_1_fixnorm_fc(
    features: Features,
    W: Weights,
    loss: Loss,
    batches: Batches,
    *,
    head: str,
    alpha: float,
    conv: Collection[str],
    **sgd: Unpack[Momentum],
) -> Iterator[State]:
    """Algorithm 1@FixNorm-FC, called FixNorm: the scale of the classifier is capped at α√C."""

    def objective(W: Weights, x: Tensor, y: Tensor) -> Tensor:
        z = fixnorm_fc(features(W, x), W[f"{head}.weight"], W[f"{head}.g"], alpha)
        return loss(z + _bias(W, head), y)

    conv_and_fc = [*conv, f"{head}.weight"]
    return _train(objective, W, batches, fixed=conv_and_fc, **sgd)


def relative_step(W_0: Tensor, W_1: Tensor, R: Tensor, angle: float) -> Tensor:
    """W ← R · N(W_0 + angle · R · d/‖d‖), where d = W_1 − W_0 is the optimizer's own step."""
    d = W_1 - W_0
    if norm([d]) == 0:
        return W_0
    W = W_0 + angle * R * d / norm([d])
    return R * W / norm([W])


def own_step(W_0: Tensor, W_1: Tensor, R: Tensor) -> Tensor:
    """W ← R · N(W_0 + R/√n · d), where d = W_1 − W_0 and W has n entries."""
    d = W_1 - W_0
    if norm([d]) == 0:
        return W_0
    W = W_0 + R / math.sqrt(d.numel()) * d
    return R * W / norm([W])


def matrix_scope(
    features: Features,
    W: Weights,
    loss: Loss,
    batches: Batches,
    *,
    head: str,
    alpha: float,
    matrices: Collection[str],
    **sgd: Unpack[Momentum],
) -> Iterator[State]:
    """Each matrix on its own sphere, the step relative to its radius: lr is an angle (ours).

    The classifier is FixNorm-FC, its weight one of the matrices.
    """

    def objective(W: Weights, x: Tensor, y: Tensor) -> Tensor:
        z = fixnorm_fc(features(W, x), W[f"{head}.weight"], W[f"{head}.g"], alpha)
        return loss(z + _bias(W, head), y)

    every = [*matrices, f"{head}.weight"]
    return _train(objective, W, batches, fixed=every, relative=True, **sgd)


def _train(
    objective: Callable[[Weights, Tensor, Tensor], Tensor],
    W: Weights,
    batches: Batches,
    *,
    fixed: Collection[str],
    lr: float | SphereRule | AngleRule,
    eta: Callable[[int], float],
    mu: float,
    nesterov: bool = False,
    relative: bool = False,
) -> Iterator[State]:
    """The loop of Algorithm 1, its line numbers on the right."""
    V = {name: torch.zeros_like(w) for name, w in W.items()}
    norm_0 = norm(W[name].detach() for name in fixed)
    R = {name: norm([W[name].detach()]) for name in fixed}
    gradients: list[list[Tensor]] = []
    for t, (x, y) in enumerate(batches):  # 1, 2
        W = {name: w.detach().requires_grad_() for name, w in W.items()}
        L = objective(W, x, y)  # 3
        dL = dict(zip(W, torch.autograd.grad(L, list(W.values())), strict=True))
        with torch.no_grad():
            V = {name: mu * V[name] + dL[name] for name in W}  # 4
            gradients.append([dL[name] for name in fixed])
            lr_t, angle_t = _rates(lr, norm_0, gradients, mu)
            eta_t = eta(t)  # 5
            step = {n: dL[n] + mu * V[n] if nesterov else V[n] for n in W}
            W_0 = W
            W = {name: w - lr_t * eta_t * step[name] for name, w in W.items()}  # 6
            if relative:
                angle = angle_t * eta_t
                W |= {n: relative_step(W_0[n], W[n], R[n], angle) for n in fixed}
            else:
                norm_t = norm(W[name] for name in fixed)
                W |= {name: W[name] / norm_t * norm_0 for name in fixed}  # 7
        yield State(W, V)


def _rates(
    lr: float | SphereRule | AngleRule, R: Tensor, gradients: Sequence[Iterable[Tensor]], mu: float
) -> tuple[float | Tensor, float]:
    """lr_t, and the angle of a relative step."""
    if isinstance(lr, AngleRule):
        return lr.lr(), lr.angle()
    lr_t = lr.lr(R, gradients, mu) if isinstance(lr, SphereRule) else lr
    return lr_t, float(lr_t)


def _bias(W: Weights, head: str) -> Tensor | float:
    return W.get(f"{head}.bias", 0.0)
