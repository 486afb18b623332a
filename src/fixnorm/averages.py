r"""Averages of weights (EMA, SWA): measured against the sphere, and brought back to it.

A mean of points on a sphere lies inside it: for weights W_1, …, W_n of norm R

    ‖mean W_k‖ ≤ R,  and equal only if they are one and the same.

What a norm follows does not care: outputs do not depend on the scale of fixed weights. Two things
do. *Running statistics* are those of other weights: an average of theirs, or the last ones seen,
while what the averaged weights put out is smaller by the factor that their norm is. And *training
that goes on* from an average: a new optimizer's ``attach`` takes the norm it finds as the target,
and the effective learning rate, lr / ‖W‖² (eq. 4), is then larger for good.

The order is: average, :func:`project_average_`, and where the model has batch norms
:func:`fixnorm.batch_statistics.update_statistics_`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.groups import Origin, is_fixed, kept_norm, origin_of
from fixnorm.norm import joint_norm, rescale_
from fixnorm.relative_step import matrix_spheres
from fixnorm.spheres import spheres
from fixnorm.structure import need_module, need_optimizer, unwrapped
from fixnorm.watch import Watched

__all__ = ["AverageFigures", "measure_average", "project_average_"]


@dataclass(frozen=True, slots=True)
class AverageFigures:
    """The average of one fixed group, or of one weight of scope ``matrix``."""

    names: tuple[str, ...]
    """The group's weights, by their names in the model."""
    norm: float
    """‖W‖ of the average."""
    target: float
    """The norm that the optimizer keeps the group at."""

    @property
    def ratio(self) -> float:
        """norm / target: 1 on the sphere, less inside."""
        return self.norm / self.target


def measure_average(average: nn.Module, optimizer: Optimizer) -> tuple[AverageFigures, ...]:
    """How far inside the sphere an average lies, for each fixed group.

    Where the weights are sharded this is a collective.

    Args:
        average: ``torch.optim.swa_utils.AveragedModel``, timm's ``ModelEmaV3``, or any module with
            the parameter names of the model. It is left as it was.
        optimizer: the attached optimizer that trains the model.
    """
    return _figures(_parts(average, optimizer))


def project_average_(average: nn.Module, optimizer: Optimizer) -> tuple[AverageFigures, ...]:
    """Multiply the average's fixed weights in place so that each group has its target norm.

    Scales ``g``, biases and all else stay. Outputs in training mode stay, too, and in evaluation
    mode where no layer has running statistics; where one does, call
    :func:`fixnorm.batch_statistics.update_statistics_` next: they are not those of these weights.

    Args:
        average: as in :func:`measure_average`.
        optimizer: the attached optimizer that trains the model.

    Returns:
        What was measured before. If anything is refused, the average is as before.
    """
    parts = _parts(average, optimizer)
    figures = _figures(parts)
    for found in figures:
        if not 0 < found.norm < float("inf"):
            raise ValueError(
                f"the average of a fixed group ({', '.join(found.names[:3])}, …) has norm "
                f"{found.norm}: it has no direction to keep; average finite weights"
            )
    for part in parts:
        rescale_(part.weights, part.target)
    return figures


@dataclass(frozen=True, slots=True)
class _Part:
    """The average's weights that belong to one fixed group."""

    names: tuple[str, ...]
    weights: list[Tensor]
    target: float


def _figures(parts: Iterable[_Part]) -> tuple[AverageFigures, ...]:
    return tuple(
        AverageFigures(part.names, float(joint_norm(part.weights)), part.target) for part in parts
    )


def _parts(average: nn.Module, optimizer: Optimizer) -> list[_Part]:
    need_module(average, "an average")
    need_optimizer(optimizer, "an average")
    groups = [group for group in optimizer.param_groups if is_fixed(group)]
    if not groups:
        raise ValueError(
            "the optimizer has no fixed group, so there is no sphere to measure against: build it "
            "from fixnorm.param_groups(model)"
        )
    if any(kept_norm(group) is None for group in groups):
        raise ValueError("a fixed group has no target norm yet: call fixnorm.attach(optimizer)")
    found: list[Watched] = [
        *spheres([optimizer]).values(),
        *matrix_spheres([optimizer]).values(),
    ]
    origins = [[_origin(weight) for weight in sphere.weights] for sphere in found]
    weights = _weights(average, origins[0][0].model())
    return [
        _Part(
            names=tuple(origin.name for origin in own),
            weights=[weights[origin.name] for origin in own],
            target=float(sphere.target),
        )
        for sphere, own in zip(found, origins, strict=True)
    ]


def _origin(parameter: nn.Parameter) -> Origin:
    origin = origin_of(parameter)
    if origin is None or origin.model() is None:
        raise ValueError(
            "the optimizer's weights have no names: build it from fixnorm.param_groups(model), and "
            "keep the model"
        )
    return origin


def _weights(average: nn.Module, model: nn.Module | None) -> dict[str, nn.Parameter]:
    """The average's parameters under the model's names."""
    assert model is not None
    expected = dict(model.named_parameters())
    found = dict(unwrapped(average).named_parameters())
    while found.keys() != expected.keys() and isinstance(
        inner := getattr(average, "module", None), nn.Module
    ):
        average = inner
        found = dict(unwrapped(average).named_parameters())
    for name, parameter in expected.items():
        if name not in found:
            late = ": make the average after fixnorm.convert(model)" if name[-2:] == ".g" else ""
            raise ValueError(f"the average has no parameter {name}, which the model has{late}")
        if found[name].shape != parameter.shape:
            raise ValueError(
                f"{name} has shape {tuple(found[name].shape)} in the average but "
                f"{tuple(parameter.shape)} in the model: it must be an average of that model"
            )
    return found
