"""The hook that ends every optimizer step on the sphere."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.angle_rule import AngleRule, has_matrices
from fixnorm.groups import RADII, TARGET, fixed_weights, is_fixed
from fixnorm.holding import Holding, fixed_of
from fixnorm.internals import version_of
from fixnorm.lr_rule import LrRule, tell_unused_state
from fixnorm.norm import Joint, multiply_, rescale_each_
from fixnorm.plain_norms import NormsOfTheSame
from fixnorm.relative_step import RelativeSteps, matrix_spheres, set_radii
from fixnorm.sphere_rule import SphereRule
from fixnorm.spheres import Sphere, copies, is_schedule_free, set_targets, spheres
from fixnorm.step_calls import (
    after_closure,
    hook_two_step,
    is_two_step,
    make_step_call_hooks,
    stepping,
)
from fixnorm.telemetry import (
    Angles,
    Figures,
    Step,
    WeightFigures,
    group_figures,
    head_figures,
    weight_figures,
)
from fixnorm.watch import Watch, Watched

__all__ = ["Handle", "attach", "handle_of"]


def attach(
    optimizer: Optimizer,
    *others: Optimizer,
    lr: Literal["auto"] | None = None,
    steps: int | None = None,
    angle_every: int = 0,
) -> Handle:
    """From now on each ``optimizer.step()`` ends with every fixed group at its target norm.

    A group's target is the norm its weights have now, unless the group already has a target, as
    it does after ``optimizer.load_state_dict``. Attach after ``fully_shard``. A group of scope
    ``matrix`` has a target for each of its weights, and its lr is the angle in radians that a step
    turns them by (:mod:`fixnorm.relative_step`).

    A weight that a step leaves alone (frozen, or without a gradient) is left alone here, too.
    Groups that join by ``add_param_group`` are followed: those of :func:`fixnorm.param_groups`, and
    plain ones that hold weights which should be fixed, as trainers that unfreeze make them.

    Args:
        optimizer: any optimizer built from :func:`fixnorm.param_groups`.
        others: more of them, where the model's weights are split over several. Their fixed groups
            share the joint norm; each step of any of them ends on the sphere.
        lr: ``"auto"`` for the learning rate that follows from the sphere
            (:mod:`fixnorm.sphere_rule`): build the optimizer, an SGD, with ``lr=1.0``, and let a
            scheduler multiply it as ever. With scope ``matrix`` it may be any optimizer, and lr
            follows from ``steps`` alone (:mod:`fixnorm.angle_rule`).
        steps: of the whole training, for ``lr="auto"``.
        angle_every: measure how far each weight turns on every n-th step; 0, the default, never.
            It needs the weights of before the step: one more copy of them during such a step.

    Returns:
        A handle: ``.figures()`` fetches the last step's numbers, ``.remove()`` detaches.
    """
    optimizers = [stepping(given) for given in (optimizer, *others)]
    for each in optimizers:
        if each in _attached:
            raise ValueError(
                "the optimizer is attached already; keep the first handle, or handle.remove() it"
            )
    if isinstance(angle_every, bool) or not isinstance(angle_every, int) or angle_every < 0:
        raise ValueError(f"angle_every must be a whole number ≥ 0 but got {angle_every!r}")
    check_auto(lr, steps)
    found = spheres(optimizers)
    if not any(is_fixed(group) for each in optimizers for group in each.param_groups):
        raise ValueError(
            "the optimizer has no fixed group: build it from fixnorm.param_groups(model), "
            "after fixnorm.convert(model)"
        )
    holding = Holding(optimizers)
    if missing := holding.missing():
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(
            f"the optimizer does not hold {missing[0]}{more} in a fixed group: build it from "
            "fixnorm.param_groups(model), after fixnorm.convert(model) and fully_shard. If another "
            "optimizer holds it, attach both: fixnorm.attach(optimizer, other)"
        )
    every = [group for each in optimizers for group in each.param_groups]
    before = [(g, key, g[key]) for g in every for key in (TARGET, RADII) if key in g]
    try:
        for sphere in found.values():
            set_targets(sphere)
        for each in optimizers:
            set_radii(each)
            make_step_call_hooks(each)
        rules = [] if lr is None else _rules(optimizers, steps, holding.left_out())
    except ValueError:
        for group, key, value in before:
            group[key] = value
        raise
    handle = Handle(optimizers, angle_every, rules)
    _attached.update(dict.fromkeys(optimizers, handle))
    return handle


def check_auto(lr: object, steps: int | None) -> None:
    """Refuse a learning rate of one's own, and steps without a use."""
    if lr not in (None, "auto") or (lr is None and steps is not None):
        raise ValueError(
            f"lr must be 'auto', with steps, or left out but got lr={lr!r}, steps={steps!r}: a "
            "learning rate of one's own is the optimizer's"
        )


def handle_of(optimizer: Optimizer) -> Handle | None:
    """The handle of an attached optimizer; none if it is not attached."""
    return _attached.get(stepping(optimizer))


class Handle:
    """The hook of an attached optimizer, or of several."""

    def __init__(
        self, optimizers: Sequence[Optimizer], angle_every: int, rules: Sequence[LrRule] = ()
    ) -> None:
        self._holding = Holding(optimizers)
        self._under_way: dict[Any, Sphere] = {}
        self._still: dict[int, int] = {}
        self._norms = {id(optimizer): NormsOfTheSame() for optimizer in optimizers}
        self._steps: dict[Any, Step] = {}
        self._angles = Angles(angle_every)
        self._relative = RelativeSteps()
        self._watch = Watch(self._holding.missing)
        self._watch.count_backwards(fixed_of(optimizers)[0])
        self._rules = {id(o): rule for o, rule in zip(optimizers, rules, strict=False)}
        self._told = False
        self._undo: list[Callable[[], None]] = [self._watch.remove]
        self._undo += [undo for rule in rules for undo in rule.undo]
        for optimizer in optimizers:
            self._undo += [
                optimizer.register_step_pre_hook(self._before_step).remove,
                optimizer.register_step_post_hook(self._after_step).remove,
            ]
            if is_two_step(optimizer):
                self._undo.append(
                    hook_two_step(
                        optimizer,
                        before=self._before_climb,
                        between=self._before_last,
                        after=self._after_step,
                    )
                )

    @property
    def lr(self) -> Literal["auto"] | None:
        """As given to ``attach``."""
        return "auto" if self._rules else None

    def remove(self) -> None:
        """Detach: further steps leave the norms, and the lr, to the optimizer."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        for optimizer in self._holding.optimizers():
            _attached.pop(optimizer, None)

    def before_clipping(self) -> None:
        """Show the gradients to ``lr="auto"`` before they are clipped.

        Between ``backward`` (with a ``GradScaler``: ``unscale_``) and the clipping, at every step.
        The learning rate is then that of a training without clipping, and clipping makes steps
        shorter, as it does at any lr. Without this call the rule sees clipped gradients alone and
        makes up for what they lack by longer steps. Does nothing without ``lr="auto"``.
        """
        own = self._holding.optimizers()
        found = spheres(own).values() if self._rules else ()
        for optimizer in own:
            if rule := self._rules.get(id(optimizer)):
                rule.before_clipping(optimizer, found)

    def figures(self) -> Figures:
        """The last step's numbers, fetched to the host.

        Warns where something is wrong with the norms. Where the layers are sharded this is a
        collective: every process must call it.
        """
        own = self._holding.optimizers()
        found = spheres(own)
        if self._undo and not self._under_way:
            every: dict[Any, Watched] = {**found, **matrix_spheres(own)}
            self._watch.look_now({k: s for k, s in every.items() if s.target is not None})
        weights: dict[str, WeightFigures] = {}
        for key, step in self._steps.items():
            names = found[key].names() if key in found else []
            weights |= weight_figures(names, step, self._angles.last.get(key))
        heads = [head_figures(model) for model in self._holding.models()]
        return Figures(
            groups=tuple(f for step in self._steps.values() for f in group_figures(step)),
            weights=weights,
            matrices=self._relative.figures(),
            heads={name: figure for own in heads for name, figure in own.items()},
            rule=next((self._rules[id(o)].figures(o) for o in own if id(o) in self._rules), None),
        )

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> tuple[Any, Any] | None:
        self._holding.follow(optimizer)
        found = spheres(self._holding.optimizers())
        self._under_way = {
            key: sphere
            for key, sphere in found.items()
            if any(member.optimizer is optimizer for member in sphere.members)
        }
        self._still = {
            id(weight): version_of(weight)
            for sphere in self._under_way.values()
            for weight in sphere.weights
            if weight.grad is None or not weight.requires_grad
        }
        self._watch.before_step(lambda: {**self._under_way, **matrix_spheres([optimizer])})
        self._relative.before(optimizer)
        self._angles.before({key: sphere.weights for key, sphere in self._under_way.items()})
        rule = self._rules.get(id(optimizer))
        if rule is None:
            self._told = self._told or tell_unused_state(optimizer)
            return None
        set_lr = functools.partial(rule.before, optimizer, found.values())
        return after_closure(set_lr, args, kwargs)

    def _before_climb(self, optimizer: Optimizer) -> None:
        if not self._under_way:  # else its step() has called it, and the hook before
            self._before_step(optimizer)

    def _before_last(self, optimizer: Optimizer) -> None:
        if rule := self._rules.get(id(optimizer)):  # the gradient that it steps by is here
            rule.before(optimizer, spheres([optimizer]).values())

    def _after_step(self, optimizer: Optimizer, args: Any = None, kwargs: Any = None) -> None:
        self._watch.after_step()
        self._relative.after()
        due: dict[Any, tuple[Joint, list[float | Tensor]]] = {}
        for key, sphere in self._under_way.items():
            lrs = [_lr(member.group) for member in sphere.members]
            weights = sphere.weights
            moved = [self._has_moved(weight) for weight in weights] if self._still else None
            own = [
                lr for lr, m in zip(lrs, sphere.members, strict=True) if m.optimizer is optimizer
            ]
            # lr 0: nothing moved, and loading a checkpoint may take such a step
            if (moved is None or any(moved)) and not all(
                not isinstance(lr, Tensor) and lr == 0 for lr in own
            ):
                due[key] = Joint(weights, sphere.target, moved), lrs
        norms = self._norms[id(optimizer)]
        done = rescale_each_([joint for joint, _ in due.values()], norms) if due else []
        for (key, (joint, lrs)), rescaled in zip(due.items(), done, strict=True):
            for member in self._under_way[key].members:
                if is_schedule_free(member.optimizer):
                    mine = [w for w in fixed_weights(member.group) if self._has_moved(w)]
                    multiply_(copies(member.optimizer, mine), rescaled.factor)
            self._steps[key] = Step(rescaled, joint.target, lrs)
            self._angles.after(key, joint.weights)
        self._under_way = {}
        if rule := self._rules.get(id(optimizer)):
            rule.after()

    def _has_moved(self, weight: nn.Parameter) -> bool:
        """Whether this step was to move the weight: known on the host, without a look at values.

        It has a gradient, or had one before the step, or was written to by the step.
        """
        had_none = self._still.get(id(weight))
        return weight.requires_grad and (weight.grad is not None or had_none != version_of(weight))


_attached: weakref.WeakKeyDictionary[Optimizer, Handle] = weakref.WeakKeyDictionary()


def _rules(optimizers: Sequence[Optimizer], steps: int | None, left: Sequence[str]) -> list[LrRule]:
    """The rule for each of the optimizers; ``left`` is what none of them holds."""
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        warnings.warn(
            f"fixnorm: lr='auto' is for what the optimizer holds, and {left[0]}{more} is not in "
            "it: an optimizer that has it keeps its own lr. fixnorm.param_groups(model) has all",
            stacklevel=3,
        )
    if has_matrices(optimizers):
        return [AngleRule(one, steps) for one in optimizers]
    return [SphereRule(one, steps, [o for o in optimizers if o is not one]) for one in optimizers]


def _lr(group: dict[str, Any]) -> float | Tensor:
    """The group's learning rate; NaN for an optimizer that has none."""
    lr = group.get("lr", float("nan"))
    return lr.detach().clone() if isinstance(lr, Tensor) else lr
