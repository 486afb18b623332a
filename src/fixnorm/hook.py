"""The hook that ends every optimizer step on the sphere."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.groups import (
    FIXED,
    RADII,
    SPHERE,
    TARGET,
    Origin,
    fixed_weights,
    is_fixed,
    kept_norm,
    origin_of,
)
from fixnorm.internals import call_step_hooks, version_of
from fixnorm.norm import Joint, multiply_, rescale_each_
from fixnorm.relative_step import RelativeSteps, matrix_spheres, set_radii
from fixnorm.sphere_rule import SphereRule, tell_unused_state
from fixnorm.spheres import Sphere, copies, is_schedule_free, set_targets, spheres
from fixnorm.structure import need_optimizer, parameters_by_name
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
            scheduler multiply it as ever. Not for scope ``matrix``.
        steps: of the whole training, for ``lr="auto"``.
        angle_every: measure how far each weight turns on every n-th step; 0, the default, never.
            It needs the weights of before the step: one more copy of them during such a step.

    Returns:
        A handle: ``.figures()`` fetches the last step's numbers, ``.remove()`` detaches.
    """
    optimizers = [_unwrapped(given) for given in (optimizer, *others)]
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
    missing = _missing(optimizers, _origins(_fixed(optimizers)))
    if missing:
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
            set_radii(each, auto=lr is not None)
            _make_step_call_hooks(each)
        rules = [] if lr is None else _rules(optimizers, steps)
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
    return _attached.get(_unwrapped(optimizer))


class Handle:
    """The hook of an attached optimizer, or of several."""

    def __init__(
        self, optimizers: Sequence[Optimizer], angle_every: int, rules: Sequence[SphereRule] = ()
    ) -> None:
        self._refs = [weakref.ref(optimizer) for optimizer in optimizers]
        weights = _fixed(optimizers)
        self._models = _origins(weights)
        self._fixed = {id(weight) for weight in weights}
        self._layouts = {id(o): _layout(o) for o in optimizers}
        self._under_way: dict[Any, Sphere] = {}
        self._still: dict[int, int] = {}
        self._steps: dict[Any, Step] = {}
        self._angles = Angles(angle_every)
        self._relative = RelativeSteps()
        self._watch = Watch(lambda: _missing(self._optimizers(), self._models))
        self._watch.count_backwards(weights[0])
        self._rules = {id(o): rule for o, rule in zip(optimizers, rules, strict=False)}
        self._told = False
        self._undo: list[Callable[[], None]] = [self._watch.remove]
        self._undo += [undo for rule in rules for undo in rule.undo]
        for optimizer in optimizers:
            self._undo += [
                optimizer.register_step_pre_hook(self._before_step).remove,
                optimizer.register_step_post_hook(self._after_step).remove,
            ]
            if hasattr(optimizer, "first_step") and hasattr(optimizer, "second_step"):
                self._undo.append(_hook_two_step(optimizer, self))

    @property
    def lr(self) -> Literal["auto"] | None:
        """As given to ``attach``."""
        return "auto" if self._rules else None

    def remove(self) -> None:
        """Detach: further steps leave the norms, and the lr, to the optimizer."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        for optimizer in self._optimizers():
            _attached.pop(optimizer, None)

    def before_clipping(self) -> None:
        """Show the gradients to ``lr="auto"`` before they are clipped.

        Between ``backward`` (with a ``GradScaler``: ``unscale_``) and the clipping, at every step.
        The learning rate is then that of a training without clipping, and clipping makes steps
        shorter, as it does at any lr. Without this call the rule sees clipped gradients alone and
        makes up for what they lack by longer steps. Does nothing without ``lr="auto"``.
        """
        own = self._optimizers()
        found = spheres(own).values() if self._rules else ()
        for optimizer in own:
            if rule := self._rules.get(id(optimizer)):
                rule.before_clipping(optimizer, found)

    def figures(self) -> Figures:
        """The last step's numbers, fetched to the host.

        Warns where something is wrong with the norms. Where the layers are sharded this is a
        collective: every process must call it.
        """
        own = self._optimizers()
        found = spheres(own)
        if self._undo and not self._under_way:
            every: dict[Any, Watched] = {**found, **matrix_spheres(own)}
            self._watch.look_now({k: s for k, s in every.items() if s.target is not None})
        weights: dict[str, WeightFigures] = {}
        for key, step in self._steps.items():
            names = found[key].names() if key in found else []
            weights |= weight_figures(names, step, self._angles.last.get(key))
        models = {id(model): model for origin in self._models if (model := origin.model())}
        heads = [head_figures(model) for model in models.values()]
        return Figures(
            groups=tuple(f for step in self._steps.values() for f in group_figures(step)),
            weights=weights,
            matrices=self._relative.figures(),
            heads={name: figure for own in heads for name, figure in own.items()},
            rule=next((self._rules[id(o)].figures(o) for o in own if id(o) in self._rules), None),
        )

    def _optimizers(self) -> list[Optimizer]:
        return [optimizer for ref in self._refs if (optimizer := ref()) is not None]

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> tuple[Any, Any] | None:
        if _layout(optimizer) != self._layouts[id(optimizer)]:
            self._regroup(optimizer)
        found = spheres(self._optimizers())
        self._under_way = {
            key: sphere
            for key, sphere in found.items()
            if any(member.optimizer is optimizer for member in sphere.members)
        }
        self._still = {
            id(weight): version_of(weight)
            for sphere in self._under_way.values()
            for weight in sphere.weights
            if weight.grad is None
        }
        self._watch.before_step({**self._under_way, **matrix_spheres([optimizer])})
        self._relative.before(optimizer)
        self._angles.before({key: sphere.weights for key, sphere in self._under_way.items()})
        rule = self._rules.get(id(optimizer))
        if rule is None:
            self._told = self._told or tell_unused_state(optimizer)
            return None
        set_lr = functools.partial(rule.before, optimizer, found.values())
        if args[1:2] == (None,) or not (args[1:] or (kwargs or {}).get("closure")):
            set_lr()
            return None
        return _calling(set_lr, args, kwargs)

    def _after_step(self, optimizer: Optimizer, args: Any = None, kwargs: Any = None) -> None:
        self._watch.after_step()
        self._relative.after()
        due: dict[Any, tuple[Joint, list[float | Tensor]]] = {}
        for key, sphere in self._under_way.items():
            lrs = [_lr(member.group) for member in sphere.members]
            weights = sphere.weights
            moved = [self._has_moved(weight) for weight in weights]
            own = [
                lr for lr, m in zip(lrs, sphere.members, strict=True) if m.optimizer is optimizer
            ]
            # lr 0: nothing moved, and loading a checkpoint may take such a step
            if any(moved) and not all(not isinstance(lr, Tensor) and lr == 0 for lr in own):
                due[key] = Joint(weights, sphere.target, moved), lrs
        done = rescale_each_([joint for joint, _ in due.values()]) if due else []
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

    def _regroup(self, optimizer: Optimizer) -> None:
        """Groups have joined since the last step, or a loaded state has brought others."""
        for i, group in enumerate(optimizer.param_groups):
            if kept_norm(group) is not None:
                continue
            if any(id(p) in self._fixed for p in group["params"]):
                key, kept = (RADII, "norms") if RADII in group else (TARGET, "norm")
                raise ValueError(
                    f"fixed group {i} has lost its target norm: the loaded state was not saved by "
                    f"an attached optimizer. Set optimizer.param_groups[{i}]['{key}'] to the "
                    f"{kept} the weights should keep, or detach with handle.remove()"
                )
            if not is_fixed(group):
                self._adopt(optimizer, group)
        for sphere in spheres(self._optimizers()).values():
            set_targets(sphere)
        set_radii(optimizer)
        weights = _fixed(self._optimizers())
        self._models = _origins(weights)
        self._fixed = {id(weight) for weight in weights}
        self._layouts[id(optimizer)] = _layout(optimizer)

    def _adopt(self, optimizer: Optimizer, group: dict[str, Any]) -> None:
        """Fix the weights of a plain group that has joined, if any of them should be fixed."""
        wanted = {id(p): n for origin in self._models for n, p in origin.fixed_now().items()}
        positions = [i for i, p in enumerate(group["params"]) if id(p) in wanted]
        if not positions:
            return
        name = wanted[id(group["params"][positions[0]])]
        joint = [g for g in optimizer.param_groups if SPHERE in g and g.get(TARGET) is not None]
        relative = any(RADII in g for g in optimizer.param_groups)
        if not joint and not relative:
            raise ValueError(
                f"a group that joined the optimizer holds {name}, whose norm is to be kept by "
                "itself: add groups of fixnorm.param_groups(model, scope='layer', "
                "beside=optimizer) instead"
            )
        if group.get("weight_decay"):
            warnings.warn(
                f"fixnorm: a group with {name} joined with weight decay {group['weight_decay']}: "
                "set to 0, as FixNorm has none. Add groups of fixnorm.param_groups(model, "
                "beside=optimizer)",
                stacklevel=2,
            )
            group["weight_decay"] = 0.0
        on_sphere = {RADII: None} if relative else {TARGET: None, SPHERE: joint[0][SPHERE]}
        group |= on_sphere | {FIXED: positions}


_attached: weakref.WeakKeyDictionary[Optimizer, Handle] = weakref.WeakKeyDictionary()


def _rules(optimizers: Sequence[Optimizer], steps: int | None) -> list[SphereRule]:
    """The rule for each of the optimizers, which together should hold all of the model."""
    if left := _left_out(optimizers):
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        warnings.warn(
            f"fixnorm: lr='auto' is for what the optimizer holds, and {left[0]}{more} is not in "
            "it: an optimizer that has it keeps its own lr. fixnorm.param_groups(model) has all",
            stacklevel=3,
        )
    return [SphereRule(one, steps, [o for o in optimizers if o is not one]) for one in optimizers]


def _left_out(optimizers: Sequence[Optimizer]) -> list[str]:
    """Names of trainable parameters of the model that no optimizer holds."""
    held = {id(p) for optimizer in optimizers for g in optimizer.param_groups for p in g["params"]}
    origins = _origins(_fixed(optimizers))
    models = [model for origin in origins if (model := origin.model()) is not None]
    return [
        name
        for model in models
        for name, p in parameters_by_name(model).items()
        if p.requires_grad and id(p) not in held
    ]


def _calling(
    set_lr: Callable[[], None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a step whose closure makes the gradients: the lr is set after it."""
    closure = args[1] if args[1:] else kwargs["closure"]

    def called() -> Any:
        loss = closure()
        set_lr()
        return loss

    if args[1:]:
        return (args[0], called, *args[2:]), kwargs
    return args, kwargs | {"closure": called}


def _layout(optimizer: Optimizer) -> list[tuple[bool, int]]:
    """What changes when groups join or leave; the keys and the sizes of all groups."""
    return [
        (kept_norm(group) is not None, len(group["params"])) for group in optimizer.param_groups
    ]


def _lr(group: dict[str, Any]) -> float | Tensor:
    """The group's learning rate; NaN for an optimizer that has none."""
    lr = group.get("lr", float("nan"))
    return lr.detach().clone() if isinstance(lr, Tensor) else lr


def _unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer that steps: some trainers wrap it in a class without hooks."""
    need_optimizer(optimizer, "attach", hint="; a wrapper that is none cannot be followed")
    while not _takes_hooks(optimizer):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            raise TypeError(
                f"{type(optimizer).__name__} takes no step hooks and wraps no optimizer"
            )
        optimizer = inner
    return optimizer


def _takes_hooks(optimizer: Optimizer) -> bool:
    try:
        optimizer.register_step_post_hook(lambda *_: None).remove()
    except AttributeError:  # a wrapper that skips Optimizer.__init__
        return False
    return True


def _make_step_call_hooks(optimizer: Optimizer) -> None:
    """A wrapper that skips ``Optimizer.__init__`` has hooks that its ``step`` does not call yet.

    timm's Lookahead is one; torch would mend it at the first ``zero_grad``, if there is any.
    """
    if getattr(type(optimizer).step, "hooked", False):
        return
    if "step" in vars(optimizer):  # a scheduler has wrapped the step that calls no hooks
        raise ValueError(
            f"the step of {type(optimizer).__name__} was wrapped before it could call hooks: "
            "attach the optimizer first, then build its scheduler"
        )
    call_step_hooks(optimizer)


def _hook_two_step(optimizer: Any, handle: Handle) -> Callable[[], None]:
    """Hook a sharpness-aware optimizer, which climbs in one method and steps in another.

    Its ``step`` calls both; a loop that calls them by itself never comes to ``step``. Hooked twice
    does no harm: a step that has ended has nothing under way.
    """
    owner = weakref.ref(optimizer)
    last = "third_step" if hasattr(optimizer, "third_step") else "second_step"

    def hooked(name: str, hook: Callable[[Optimizer], Any], *, first: bool) -> Callable[..., Any]:
        method = getattr(type(optimizer), name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            this = owner()
            assert this is not None
            if first and not handle._under_way:
                hook(this)
            elif not first and (rule := handle._rules.get(id(this))):
                rule.before(this, spheres([this]).values())  # the gradient that it steps by is here
            result = method(this, *args, **kwargs)
            if not first:
                hook(this)
            return result

        return call

    optimizer.first_step = hooked("first_step", handle._before_step, first=True)
    setattr(optimizer, last, hooked(last, handle._after_step, first=False))

    def undo() -> None:
        this = owner()
        for name in ("first_step", last):
            vars(this).pop(name, None)

    return undo


def _fixed(optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
    """All weights whose norm the optimizers keep, of any scope."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return [weight for group in groups if is_fixed(group) for weight in fixed_weights(group)]


def _origins(weights: Iterable[nn.Parameter]) -> list[Origin]:
    """One origin for each model that the weights come from."""
    models: dict[int, Origin] = {}
    for weight in weights:
        origin = origin_of(weight)
        if origin is not None:
            models.setdefault(id(origin.model()), origin)
    return list(models.values())


def _missing(optimizers: Sequence[Optimizer], origins: Sequence[Origin]) -> list[str]:
    """Names of weights that should be in a fixed group of the optimizers and are not."""
    held = {id(weight) for weight in _fixed(optimizers)}
    return [
        name for origin in origins for name, p in origin.fixed_now().items() if id(p) not in held
    ]
