"""Ways to search, complete with their numbers: a plan over slots, or a sampler over points."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fixnorm.methods import MethodName
from fixnorm.system import brief
from fixnorm.system.numbers import check_number, check_whole
from fixnorm.tuning.plan import LR, PAPER, Advice, Results, SearchSpace
from fixnorm.tuning.plans import DEFAULT, SAMPLERS, plan_of
from fixnorm.tuning.search import Ledger
from fixnorm.tuning.trial import AUTO, Round, StudyRecord, Trial
from fixnorm.tuning.unimodal import MARGIN

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

__all__ = ["PlanStrategy", "SamplerStrategy", "Strategy"]

_DECAY, _BUDGET, _MARGIN = (1e-12, 1e3), 10_000, 1e6


@dataclass(frozen=True, kw_only=True)
class PlanStrategy:
    """FixNorm's lr and alpha by a plan."""

    space: SearchSpace = PAPER
    plan: str = DEFAULT
    margin: float = MARGIN
    """Of plans that ask for it: the difference in accuracy that noise does not explain."""
    method: ClassVar[str] = "fixnorm"
    trains: ClassVar[MethodName] = "fixnorm"

    def __post_init__(self) -> None:
        if not isinstance(self.space, SearchSpace):
            raise ValueError(f"space must be a SearchSpace but got {brief(self.space)}")
        plan = plan_of(self.plan)
        for name, value in asdict(self.space).items():
            if name not in plan.uses and value != getattr(PAPER, name):
                raise ValueError(
                    f"{name} means nothing to plan {self.plan}, which uses the space's"
                    f" {' and '.join(plan.uses)} alone, but got {brief(value)}: leave it out"
                )
        check_number("margin", self.margin)
        if not 0 <= self.margin <= _MARGIN:
            raise ValueError(f"margin must lie in [0, {_MARGIN:g}] but got {self.margin:g}")

    @property
    def name(self) -> str:
        return self.plan

    @property
    def parameters(self) -> dict[str, float]:
        """The numbers that the plan depends on beside the space."""
        named = plan_of(self.plan).parameters
        return {**named, **({"margin": self.margin} if "margin" in named else {})}

    @property
    def trainings(self) -> int:
        """The most that it takes: a plan that leaves some out promises no fewer."""
        return plan_of(self.plan).trainings(self.space)

    @property
    def cost(self) -> float:
        """Of all of them in full."""
        return plan_of(self.plan).cost(self.space)

    @property
    def branches(self) -> tuple[float, ...]:
        """Alphas whose trainings may go on from a trunk's."""
        return () if plan_of(self.plan).searches_lr else self.space.alphas

    def outline(self) -> list[str]:
        """What it will do, in a few lines."""
        plan = plan_of(self.plan)
        lines = plan.rounds(self.space) if plan.rounds is not None else self._rounds()
        if plan.outline is not None:
            lines.append(plan.outline.format(**self.parameters))
        return lines

    def _rounds(self) -> list[str]:
        space = self.space
        times = f" × {space.seeds} seeds" if space.seeds > 1 else ""
        slots = next(iter(self.advice({}).rounds.values()))
        first = " ".join(f"{slot.rate:g}" for slot in slots)
        later = f"{space.splits} from {space.lr_min:g} to the best of the round before"
        lines = [
            f"{Round('lr', r)}: {first if r == 0 else later}{times}, {fraction:g} T_max each"
            for r, fraction in enumerate(space.fractions)
        ]
        alphas = " ".join(f"{alpha:g}" for alpha in space.alphas if alpha != slots[0].alpha)
        if alphas:
            lines.append(
                f"{Round('alpha')}: {alphas}{times} at the best lr,"
                f" {space.fractions[-1]:g} T_max each; those whose cap is never met are free"
            )
        return lines

    def settings(self) -> dict[str, Any]:
        """All that it depends on, for the study to compare."""
        named = {"method": self.method, "strategy": self.name, "metric": "accuracy (%)"}
        uses = plan_of(self.plan).uses
        space = {name: value for name, value in asdict(self.space).items() if name in uses}
        return {**named, "space": space, **self.parameters}

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """What is tuned, for Optuna: the ranges that the slots lie in."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        alphas = FloatDistribution(self.space.alphas[0], self.space.alphas[-1], log=True)
        if not plan_of(self.plan).searches_lr:
            return {"lr": CategoricalDistribution((AUTO,)), "alpha": alphas}
        return {"lr": FloatDistribution(self.space.lr_min, self.space.lr_max), "alpha": alphas}

    def sampler(self) -> None:
        """None: the plan decides."""
        return

    def advice(self, results: Results) -> Advice:
        """The plan's word on what has ended."""
        return plan_of(self.plan).decide(self.parameters)(self.space, results)

    def check(self, record: StudyRecord) -> None:
        """Refuse trials that the plan would not have asked for: a study that somebody changed."""
        check_slots(record.trials, self)

    def wanted(self, ledger: Ledger, room: int, running: Collection[str]) -> list[Trial]:
        """What the plan says; slots that need no training are filled on the way."""
        while (advice := self.advice(ledger.results)).free:
            for trial, source in advice.free.items():
                known = replace(ledger.results[source], seconds=None, ended=None, share=1.0)
                if known.finite:
                    known = replace(known, state="free", source=source.key, reason=None)
                ledger.end(trial, known)
        return [trial for trial in advice.train if trial.key not in running][:room]


def check_slots(
    trials: Collection[Trial], strategy: PlanStrategy, *, over: bool | None = None
) -> Advice:
    """Refuse trials that a plan would not have asked for, or an end that it has not come to."""
    for trial in trials:
        if trial.alpha is None or trial.round.kind not in ("lr", "trunk", "alpha"):
            raise ValueError(f"trial {trial.number} ({trial.key}) is of no round of the plan")
    advice = strategy.advice({t.asked: t.result for t in trials if t.result is not None})
    known = {
        asked.key: asked
        for slots in advice.rounds.values()
        for slot in slots
        for seed in range(strategy.space.seeds)
        for asked in [slot.seeded(seed)]
    }
    keys = [trial.key for trial in trials]
    for trial in trials:
        asked = known.get(trial.key)
        if asked is None:
            raise ValueError(
                f"trial {trial.number} ({trial.key}) is one that the plan does not ask for, as"
                " its values are: some are missing or changed"
            )
        for name in ("round", "index", "lr", "alpha", "fraction", "seed", "branch_of"):
            there, here = getattr(trial, name), getattr(asked, name)
            if there != here:
                raise ValueError(
                    f"trial {trial.number} ({trial.key}) has {name} {there} where the plan has"
                    f" {here}: the study was changed"
                )
        if keys.count(trial.key) > 1:
            raise ValueError(f"{trial.key} has two trials: the study was changed")
        if trial.source is not None and trial.source not in keys:
            raise ValueError(f"trial {trial.number} is free by {trial.source}, which is missing")
    if over and not advice.over:
        raise ValueError("it says that the search is over but slots have no value")
    return advice


@dataclass(frozen=True, kw_only=True)
class SamplerStrategy:
    """Weight decay's lr and λ by Bayesian optimisation, as in the paper's section 4.1."""

    lr_min: float = PAPER.lr_min
    lr_max: float = PAPER.lr_max
    weight_decay_min: float = 1e-5
    weight_decay_max: float = 5e-4
    budget: int = 25
    """Trainings."""
    sampler_name: str = "gp"
    seed: int = 0
    method: ClassVar[str] = "bo-weight-decay"
    trains: ClassVar[MethodName] = "weight-decay"

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
        return self.sampler_name

    @property
    def trainings(self) -> int:
        return self.budget

    @property
    def cost(self) -> float:
        """Every point is trained in full."""
        return float(self.budget)

    def outline(self) -> list[str]:
        return [
            f"lr in [{self.lr_min:g}, {self.lr_max:g}], weight decay in"
            f" [{self.weight_decay_min:g}, {self.weight_decay_max:g}], both on a log scale"
        ]

    def settings(self) -> dict[str, Any]:
        """The ranges; a budget may be raised later."""
        settings = asdict(self)
        del settings["budget"]
        named = {"method": self.method, "strategy": self.name, "metric": "accuracy (%)"}
        return named | settings

    def distributions(self) -> Mapping[str, BaseDistribution]:
        from optuna.distributions import FloatDistribution

        return {
            "lr": FloatDistribution(self.lr_min, self.lr_max, log=True),
            "weight_decay": FloatDistribution(
                self.weight_decay_min, self.weight_decay_max, log=True
            ),
        }

    def sampler(self) -> optuna.samplers.BaseSampler:
        """Optuna's, with its defaults."""
        from optuna import samplers

        if self.sampler_name == "gp":
            return samplers.GPSampler(seed=self.seed)
        if self.sampler_name == "tpe":
            return samplers.TPESampler(seed=self.seed)
        return samplers.RandomSampler(seed=self.seed)

    def check(self, record: StudyRecord) -> None:
        """Any points will do: the settings have the ranges."""

    def wanted(self, ledger: Ledger, room: int, running: Collection[str]) -> list[Trial]:
        """First what a killed driver left; then new points up to the budget."""
        left = [t for t in ledger.trials.values() if t.result is None and t.key not in running]
        trials = [trial.asked for trial in left][:room]
        while len(trials) < room and len(ledger.trials) < self.budget:
            trials.append(ledger.sample().asked)
        return trials


Strategy = PlanStrategy | SamplerStrategy
