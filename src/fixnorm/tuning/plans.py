"""The plans by name: the one place where a plan is made known, to commands, replays and pages.

A plan is a pure function in a file of its own, such as :mod:`fixnorm.tuning.unimodal`, with
:func:`register` to make it known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from fixnorm.system import brief
from fixnorm.tuning import auto
from fixnorm.tuning.plan import Advice, Results, SearchSpace, paper
from fixnorm.tuning.uncapped import uncapped
from fixnorm.tuning.unimodal import MARGIN, unimodal

__all__ = ["DEFAULT", "PLANS", "SAMPLERS", "TITLES", "Decide", "Plan", "plan_of", "register"]

DEFAULT = "paper"
"""The plan of a function that names none: its lr is a number. Commands choose by the recipe."""
Decide = Callable[[SearchSpace, Results], Advice]
"""From what has ended to what comes next."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A way to search for lr and alpha, and what is to be said of it."""

    name: str
    title: str
    """What people call it."""
    hint: str
    """What it is, in a few words."""
    function: Callable[..., Advice]
    """A :data:`Decide` that also takes the parameters, by keyword."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Numbers that it depends on beside the space, with their defaults: the study keeps them.
    ``margin`` is the caller's to give."""
    outline: str | None = None
    """What it does beside its rounds, with parameters in braces."""
    rounds: Callable[[SearchSpace], list[str]] | None = None
    """The rounds in words, where they are not Algorithm 4's."""
    uses: tuple[str, ...] = tuple(field.name for field in fields(SearchSpace))
    """The fields of the space that it depends on."""
    skips: bool = False
    """Whether it leaves slots of its rounds untrained: their number does not tell its end."""

    @property
    def searches_lr(self) -> bool:
        """Whether it has lr rounds; else the rule of the sphere sets the learning rate."""
        return "lr_min" in self.uses

    def trainings(self, space: SearchSpace) -> int:
        """The most that it takes: those of Algorithm 4, or one of every alpha."""
        return space.trainings if self.searches_lr else len(space.alphas) * space.seeds

    def cost(self, space: SearchSpace) -> float:
        """The most that they cost, in T_max."""
        return space.cost if self.searches_lr else float(self.trainings(space))

    def longest(self, space: SearchSpace) -> float:
        """The length of its longest trainings, in T_max."""
        return max(space.fractions) if self.searches_lr else 1.0

    def decide(self, parameters: Mapping[str, float] | None = None) -> Decide:
        """The plan with its numbers, those of ``parameters`` in place of the defaults."""
        given = {
            name: (parameters or {}).get(name, default) for name, default in self.parameters.items()
        }
        return functools.partial(self.function, **given) if given else self.function


PLANS: dict[str, Plan] = {}
SAMPLERS = {"gp": "Bayesian (GP)", "tpe": "TPE", "random": "random search"}
"""Optuna's, with what people call them."""
TITLES: dict[str, str] = {}
"""What people call each way to search."""


def register(plan: Plan) -> None:
    """Make a plan known by its name."""
    if plan.name in TITLES:
        raise ValueError(f"a plan or sampler is called {plan.name!r} already: give another name")
    PLANS[plan.name] = plan
    TITLES[plan.name] = plan.title


def plan_of(name: object) -> Plan:
    """The plan of a name; a :class:`ValueError` lists those that there are."""
    if not isinstance(name, str) or name not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)} but got {brief(name)}")
    return PLANS[name]


register(Plan(name="paper", title="paper's plan", hint="Algorithm 4", function=paper))
register(
    Plan(
        name="unimodal",
        title="unimodal plan",
        hint="skips what cannot win",
        function=unimodal,
        parameters={"margin": MARGIN},
        outline="trainings that cannot win by more than {margin:g} are left out",
        skips=True,
    )
)
register(
    Plan(
        name="uncapped",
        title="uncapped plan",
        hint="Algorithm 4 with lr tuned at the largest alpha",
        function=uncapped,
    )
)
register(
    Plan(
        name="auto",
        title="auto plan",
        hint="lr by the sphere rule, alpha by branches",
        function=auto.auto,
        parameters={"margin": MARGIN},
        outline="ends where accuracy is more than {margin:g} below the best; a branch costs only"
        " what is left, 2.4 to 2.9 T_max in all on three small recipes",
        rounds=auto.outline,
        uses=("alphas", "seeds"),
        skips=True,
    )
)
TITLES.update(SAMPLERS)
