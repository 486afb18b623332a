"""Ways to search, complete with their numbers: Algorithm 4, the faster plan, and the baselines."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

from fixnorm.methods import MethodName
from fixnorm.system import brief
from fixnorm.system.numbers import check_number, check_whole
from fixnorm.tuning.plan import LR, PAPER, SearchSpace, paper
from fixnorm.tuning.sources import Plan, PlanSource, SamplerSource, Source
from fixnorm.tuning.study import Study
from fixnorm.tuning.unimodal import MARGIN, unimodal

__all__ = ["PLANS", "SAMPLERS", "PlanStrategy", "SamplerStrategy", "Strategy"]

PLANS = ("paper", "unimodal")
SAMPLERS = ("gp", "tpe", "random")
_DECAY, _BUDGET, _MARGIN = (1e-12, 1e3), 10_000, 1e6


class Strategy(Protocol):
    """What a search depends on, beside the recipe."""

    @property
    def method(self) -> str:
        """``"fixnorm"`` or ``"bo-weight-decay"``."""

    @property
    def trains(self) -> MethodName:
        """The method of its trainings."""

    @property
    def name(self) -> str:
        """Of the strategy among those of its method."""

    @property
    def trainings(self) -> int:
        """The most trainings."""

    @property
    def cost(self) -> float:
        """The most they cost, in T_max."""

    def outline(self) -> list[str]:
        """What it will do, in a few lines."""

    def settings(self) -> dict[str, Any]:
        """All numbers, for the study to compare."""

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """What is tuned, for Optuna."""

    def sampler(self) -> optuna.samplers.BaseSampler | None:
        """Optuna's part in it."""

    def source(self, study: Study) -> Source:
        """The decisions, on a study."""


@dataclass(frozen=True, kw_only=True)
class PlanStrategy:
    """FixNorm's lr and alpha by a plan."""

    space: SearchSpace = PAPER
    plan: Literal["paper", "unimodal"] = "paper"
    margin: float = MARGIN
    """Of ``unimodal``: the difference in accuracy that noise does not explain."""
    method = "fixnorm"
    trains: MethodName = "fixnorm"

    def __post_init__(self) -> None:
        if not isinstance(self.space, SearchSpace):
            raise ValueError(f"space must be a SearchSpace but got {brief(self.space)}")
        if not isinstance(self.plan, str) or self.plan not in PLANS:
            raise ValueError(f"plan must be {' or '.join(PLANS)} but got {brief(self.plan)}")
        check_number("margin", self.margin)
        if not 0 <= self.margin <= _MARGIN:
            raise ValueError(f"margin must lie in [0, {_MARGIN:g}] but got {self.margin:g}")

    @property
    def name(self) -> str:
        """The plan's."""
        return self.plan

    @property
    def trainings(self) -> int:
        """Those of the full plan: the faster one promises no fewer."""
        return self.space.trainings

    @property
    def cost(self) -> float:
        """As of the full plan."""
        return self.space.cost

    def outline(self) -> list[str]:
        """The rounds."""
        space = self.space
        times = f" × {space.seeds} seeds" if space.seeds > 1 else ""
        first = " ".join(f"{slot.lr:g}" for slot in self.function()(space, {}).rounds[0].slots)
        later = f"{space.splits} from {space.lr_min:g} to the best of the round before"
        lines = [
            f"lr round {r + 1}: {first if r == 0 else later}{times}, {fraction:g} T_max each"
            for r, fraction in enumerate(space.fractions)
        ]
        alphas = " ".join(f"{alpha:g}" for alpha in space.alphas[1:])
        if alphas:
            lines.append(
                f"alpha round: {alphas}{times} at the best lr, {space.fractions[-1]:g} T_max each;"
                " those whose cap is never met are free"
            )
        if self.plan == "unimodal":
            lines.append(f"trainings that cannot win by more than {self.margin:g} are left out")
        return lines

    def settings(self) -> dict[str, Any]:
        """The search space."""
        margin = {"margin": self.margin} if self.plan == "unimodal" else {}
        return {"space": asdict(self.space), **margin}

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """The ranges that the slots lie in."""
        alphas = self.space.alphas
        return {
            "lr": FloatDistribution(self.space.lr_min, self.space.lr_max),
            "alpha": FloatDistribution(alphas[0], alphas[-1], log=True),
        }

    def sampler(self) -> None:
        """None: the plan decides."""
        return

    def source(self, study: Study) -> Source:
        """The plan at work."""
        return PlanSource(study, self.space, self.function())

    def function(self) -> Plan:
        """The plan itself."""
        if self.plan == "paper":
            return paper
        return functools.partial(unimodal, margin=self.margin)


@dataclass(frozen=True, kw_only=True)
class SamplerStrategy:
    """Weight decay's lr and λ by Bayesian optimisation, as in the paper's section 4.1."""

    lr_min: float = PAPER.lr_min
    lr_max: float = PAPER.lr_max
    weight_decay_min: float = 1e-5
    weight_decay_max: float = 5e-4
    budget: int = 25
    """Trainings."""
    sampler_name: Literal["gp", "tpe", "random"] = "gp"
    seed: int = 0
    method = "bo-weight-decay"
    trains: MethodName = "weight-decay"

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay"):
            low, high = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            check_number(f"{name}_min", low)
            check_number(f"{name}_max", high)
            if not (0 < low < high):
                raise ValueError(
                    f"{name}_max must be greater than {name}_min > 0 but got [{low:g}, {high:g}]"
                )
            least, most = LR if name == "lr" else _DECAY
            if not (least <= low and high <= most):
                raise ValueError(
                    f"{name} must lie in [{least:g}, {most:g}] but got [{low:g}, {high:g}]"
                )
        check_whole("budget", self.budget, least=1, most=_BUDGET)
        if self.sampler_name not in SAMPLERS:
            raise ValueError(
                f"sampler must be one of {', '.join(SAMPLERS)} but got {self.sampler_name!r}"
            )

    @property
    def name(self) -> str:
        """The sampler's."""
        return self.sampler_name

    @property
    def trainings(self) -> int:
        """The budget."""
        return self.budget

    @property
    def cost(self) -> float:
        """Every point is trained in full."""
        return float(self.budget)

    def outline(self) -> list[str]:
        """The ranges."""
        return [
            f"lr in [{self.lr_min:g}, {self.lr_max:g}], weight decay in"
            f" [{self.weight_decay_min:g}, {self.weight_decay_max:g}], both on a log scale"
        ]

    def settings(self) -> dict[str, Any]:
        """The ranges; a budget may be raised later."""
        settings = asdict(self)
        del settings["budget"], settings["trains"]
        return settings

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """Both on a log scale."""
        return {
            "lr": FloatDistribution(self.lr_min, self.lr_max, log=True),
            "weight_decay": FloatDistribution(
                self.weight_decay_min, self.weight_decay_max, log=True
            ),
        }

    def sampler(self) -> optuna.samplers.BaseSampler:
        """Optuna's, with its defaults."""
        if self.sampler_name == "gp":
            return optuna.samplers.GPSampler(seed=self.seed)
        if self.sampler_name == "tpe":
            return optuna.samplers.TPESampler(seed=self.seed)
        return optuna.samplers.RandomSampler(seed=self.seed)

    def source(self, study: Study) -> Source:
        """The sampler at work."""
        return SamplerSource(study, self.budget)
