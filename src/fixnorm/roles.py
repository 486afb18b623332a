r"""Which weights may be fixed: measured on the model itself, not guessed from class names.

Let F = ⟨u, f(x; W)⟩ for a random u. By Euler's theorem for homogeneous functions,

    f does not depend on the scale of W_i   ⇔   ⟨∂F/∂W_i, W_i⟩ = 0 for every u,

so one backward pass measures every weight at once. The number reported for a weight is
|⟨∂F/∂W_i, W_i⟩| / (‖∂F/∂W_i‖·‖W_i‖), the largest over three passes: below 1e-13 for every
scale-invariant weight of the networks tried, above 1e-4 for every other.

A *head* is a weight that the output is linear in: its layer's output y is linear in the weight
(measured on the layer alone), and ∂F/∂y is one and the same before and after every parameter of
the model is changed.

The measurement runs on a copy, in float64 and training mode, with the ε of norms ≈ 0, dropout and
stochastic depth off, and biases and affines randomised: each of these would otherwise hide or feign
invariance (a zero-initialised γ stops the gradient; ε makes channels of small variance depend on
scale). Then the copy runs once in evaluation mode, to see which layers are bypassed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from fixnorm.bypass import read_in_eval_outside_owner
from fixnorm.measure import Measured, RanTheOriginal, Run, measure, prepared_copy
from fixnorm.methods import Scope
from fixnorm.norm import is_sharded
from fixnorm.sample import LARGE, Guess, default_guesses, starved_layers
from fixnorm.structure import is_vector, need_module, owner_name

__all__ = ["Audit", "AuditRow", "audit"]

T = TypeVar("T")
Role = Literal["fixed", "head", "unnormalised", "free", "unused"]

# Between the two clouds (1e-13 and 1e-4, on a log scale).
_INVARIANT = 1e-9


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One parameter of the model."""

    name: str
    shape: tuple[int, ...]
    role: Role
    """``fixed``: the output does not depend on its scale; ``head``: the output is linear in it;
    ``unnormalised``: its scale matters; ``free``: a bias, a norm's affine or another vector;
    ``unused``: the output does not depend on it at all."""
    figure: float | None
    """|⟨∂F/∂W, W⟩| / (‖∂F/∂W‖·‖W‖); none for free and unused parameters."""
    trainable: bool
    layer: str
    """Class of the module that owns it."""
    also: tuple[str, ...] = ()
    """Other names of the same parameter (tied weights)."""
    called: bool = True
    """Whether the owning module was called as such; not so if its weight is used from outside."""
    bypassed_in_eval: bool = False
    """Whether evaluation mode uses the weight from outside though training calls its module, as
    torch's fast paths do."""
    head_uses: tuple[str, ...] = ()
    """Those of its names under which the output is linear in it, each use taken by itself: all of
    them for a ``head``; ``lm_head.weight`` alone where it is tied to an embedding."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the parameter, its own first."""
        return (self.name, *self.also)

    @property
    def owners(self) -> tuple[str, ...]:
        """Names of the modules that hold it, one for each of its names."""
        return tuple(owner_name(name) for name in self.names)


@dataclass(frozen=True, slots=True)
class Audit:
    """The role of every parameter of a model. ``print`` it to see a table."""

    rows: tuple[AuditRow, ...]

    def __iter__(self) -> Iterator[AuditRow]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> AuditRow:
        for row in self.rows:
            if name in row.names:
                return row
        raise KeyError(name)

    def names(self, role: Role) -> tuple[str, ...]:
        """Names of the parameters with this role, in the model's order."""
        return tuple(row.name for row in self.rows if row.role == role)

    def counts(self) -> dict[str, int]:
        """How many parameters have each role."""
        found = dict.fromkeys(("fixed", "head", "unnormalised", "free", "unused"), 0)
        for row in self.rows:
            found[row.role] += 1
        return found

    @property
    def scope(self) -> Scope:
        """Which scope fits: ``global`` where most weights are scale-free, ``matrix`` elsewhere."""
        fixed, others = (len(self.names(role)) for role in ("fixed", "unnormalised"))
        return "global" if fixed and fixed >= others else "matrix"

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        lists = ("shape", "also", "head_uses")
        rows = [asdict(row) | {key: list(getattr(row, key)) for key in lists} for row in self]
        return {"counts": self.counts(), "scope": self.scope, "rows": rows}

    def __str__(self) -> str:
        table = [("parameter", "shape", "layer", "role", "⟨∂F/∂W, W⟩")]
        for row in self.rows:
            if row.role == "free":
                continue
            figure = "" if row.figure is None else f"{row.figure:.0e}"
            note = "" if row.trainable else " (frozen)"
            tied = "".join(f" = {name}" for name in row.also)
            shape = "×".join(map(str, row.shape))
            table.append((row.name + tied, shape, row.layer, row.role + note, figure))
        widths = [max(len(line[column]) for line in table) for column in range(5)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        counted = ", ".join(f"{count} {role}" for role, count in self.counts().items() if count)
        return "\n".join([*lines, f"{len(self.rows)} parameters: {counted}", self._advice()])

    def _advice(self) -> str:
        if self.scope == "global":
            return "scope: global, as most weights are scale-free"
        few = "few weights are" if self.names("fixed") else "no weight is"
        return f"scope: matrix, as {few} scale-free (fixnorm.convert(model, …, scope='matrix'))"


Sample = Tensor | tuple[Any, ...] | Mapping[str, Any] | Run


def audit(model: nn.Module, sample: Sample | None = None) -> Audit:
    """Measure how the model's output answers to the scale of each of its parameters.

    Args:
        model: any module; it is left as it was.
        sample: an input tensor, a tuple of inputs, a dict of keyword inputs, or a callable that is
            given (a copy of) the model, runs it and returns its output:
            ``lambda m: m(images, targets)``. Needed only where the model does not say what it
            eats. Four or more examples, please: a batch norm over two values is a sign function.

    Returns:
        One row for each parameter; ``print`` it.
    """
    need_module(model, "audit")
    _refuse_scripted(model)
    names = _names(model)
    if not names:
        raise ValueError(f"{type(model).__name__} has no floating-point parameter to measure")
    given = None if sample is None else _runs_on(sample)
    with prepared_copy(model) as twin:
        if given is None:
            measured, run = _measure_at_a_guess(twin, model)
        else:
            measured, run = _measure_as_told(twin, given), given
        if callable(sample) and not measured.figures and measured.unused:
            raise ValueError(
                "the output depends on no weight of the copy that the callable was given: "
                "write sample=lambda m: m(x)"
            )
        outside_in_eval = read_in_eval_outside_owner(twin, run)
    rows = []
    for parameter, own_names in names.items():
        name = own_names[0]
        module = model.get_submodule(owner_name(name))
        vector = is_vector(module, name.rpartition(".")[2], parameter)
        role: Role
        figure: float | None
        role, figure = ("free", None) if vector else _role(measured, own_names)
        called = all(owner_name(n) in measured.called for n in own_names)
        rows.append(
            AuditRow(
                name=name,
                shape=tuple(parameter.shape),
                role=role,
                figure=figure,
                trainable=parameter.requires_grad,
                layer=type(module).__name__,
                also=own_names[1:],
                called=called,
                bypassed_in_eval=called and name in outside_in_eval,
                head_uses=tuple(n for n in own_names if n in measured.heads and not vector),
            )
        )
    return Audit(tuple(rows))


def _measure_as_told(twin: nn.Module, run: Run) -> Measured:
    try:
        return measure(twin, run)
    except RanTheOriginal:
        raise
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as error:
        raise ValueError(f"the model could not be run on the sample in float64: {error}") from error


def _measure_at_a_guess(twin: nn.Module, model: nn.Module) -> tuple[Measured, Run]:
    """At the smallest input that starves no layer; at a large one if some weight is unused there.

    An attention over a single position, say, has no use for its queries.
    """
    guesses = default_guesses(model)
    tries = _Tries()
    starved: dict[Guess, int] = {}
    for guess in guesses:
        found = tries.of(starved_layers, twin, guess)
        if found is not None:
            starved[guess] = found
            if found == 0 or guess.positions >= LARGE:
                break
    roomiest_first = sorted(starved, key=lambda guess: starved[guess])
    rest = guesses[len(starved) + tries.failed :]
    for guess in [*roomiest_first, *rest]:
        measured = tries.of(measure, twin, guess)
        if measured is not None:
            break
    else:
        raise ValueError(
            "no input could be guessed for the model"
            + (f" (last try: {tries.failure})" if tries.failure else "")
            + "; pass one that it takes: sample=torch.randn(4, ...), or sample=lambda m: m(...)"
        ) from tries.failure
    larger = [g for g in guesses if guess.positions < g.positions <= LARGE]
    if measured.unused and larger:
        largest = max(larger, key=lambda g: g.positions)
        again = tries.of(measure, twin, largest)
        if again is not None and len(again.unused) < len(measured.unused):
            return again, largest
    return measured, guess


class _Tries:
    """Runs of guesses that may fail; the last failure is kept, without all that it held."""

    def __init__(self) -> None:
        self.failed = 0
        self.failure: Exception | None = None

    def of(self, what: Callable[[nn.Module, Run], T], twin: nn.Module, guess: Guess) -> T | None:
        try:
            return what(twin, guess)
        except RanTheOriginal:
            raise
        except Exception as error:
            self.failed += 1
            self.failure = error.with_traceback(None)
            return None


def _runs_on(sample: Sample) -> Run:
    """The user's own way to run the model."""
    if isinstance(sample, Tensor):
        return lambda twin: twin(sample)
    if isinstance(sample, tuple):
        return lambda twin: twin(*sample)
    if isinstance(sample, Mapping):
        return lambda twin: twin(**sample)
    if callable(sample):
        return sample
    raise TypeError(
        f"sample is of type {type(sample).__name__}, but must be a tensor, a tuple of inputs, a "
        "dict of keyword inputs or a callable that runs the model: sample=torch.randn(4, 3, 32, 32)"
        " or sample=lambda m: m(x)"
    )


def _refuse_scripted(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"{name} is a TorchScript module" if name else "the model is TorchScript"
            raise TypeError(
                f"{what}, whose layers cannot be changed: convert the nn.Module that it was made "
                "from, and script it when it is trained and folded (fixnorm.fold)"
            )


def _names(model: nn.Module) -> dict[nn.Parameter, tuple[str, ...]]:
    """Every floating-point parameter with all its names."""
    names: dict[nn.Parameter, tuple[str, ...]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if is_sharded(parameter):
            raise ValueError(
                f"{name} is sharded: audit and convert the model before fully_shard(model)"
            )
        if parameter.is_meta:
            raise ValueError(
                f"{name} is on the meta device: materialise the model first (to_empty and init)"
            )
        if parameter.is_floating_point():
            names[parameter] = (*names.get(parameter, ()), name)
    return names


def _role(measured: Measured, names: tuple[str, ...]) -> tuple[Role, float | None]:
    figure = measured.figures.get(names[0])
    if figure is None:
        return "unused", None
    if figure < _INVARIANT:
        return "fixed", figure
    return ("head" if all(n in measured.heads for n in names) else "unnormalised"), figure
