"""What the answer of a search is compared with: the recipe as plain weight decay trains it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fixnorm.commands.configured import configured
from fixnorm.tuning.comparison import COMPARISON, Comparison
from fixnorm.tuning.run import ComparedRuns, RecipeSearch, TrialRuns
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import Lr, Trial

__all__ = ["Rival", "is_compared"]


def is_compared(asked: bool | None, runs: TrialRuns) -> bool:
    """As asked; unless somebody says, for the small set alone that it was made to show."""
    if asked is not None:
        return asked
    return runs.recipe.method == "fixnorm" and getattr(runs.recipe, "data", None) == "few-digits"


@dataclass(frozen=True)
class Rival:
    """Weight decay with the recipe's own numbers, and all runs of search and comparison."""

    runs: ComparedRuns

    @classmethod
    def beside(cls, runs: TrialRuns, recipe: str) -> Rival:
        """Of the recipe that this search tunes, with the same settings of the user's."""
        rival = configured(recipe, "weight-decay", list(runs.settings))
        name = runs.folder.name.replace("fixnorm", COMPARISON, 1)
        anew = replace(runs, folder=runs.folder.with_name(name), branches=())
        return cls(
            ComparedRuns(
                folder=runs.folder,
                processes=runs.processes,
                options=runs.options,
                search=runs,
                anew=anew,
                rival=replace(anew, recipe=rival),
            )
        )

    def search(self, search: RecipeSearch, best: Trial) -> RecipeSearch:
        """The comparison of a search's answer, with seeds that the search has not seen."""
        assert best.alpha is not None
        made = self._comparison(search, best.lr, best.alpha)
        named = None if search.named is None else f"{search.named}-{COMPARISON}"
        return replace(search, strategy=made, runs=self.runs.anew, named=named)

    def trials(self, search: RecipeSearch) -> list[Trial]:
        """The rival's, which are the same whatever the search will answer."""
        return self._comparison(search, math.nan, math.nan).rivals

    def _comparison(self, search: RecipeSearch, lr: Lr, alpha: float) -> Comparison:
        recipe, strategy = self.runs.rival.recipe, search.strategy
        assert isinstance(strategy, PlanStrategy)
        assert isinstance(recipe.lr, float)
        return Comparison(
            lr=lr,
            alpha=alpha,
            rival_lr=recipe.lr,
            rival_weight_decay=recipe.weight_decay,
            name=strategy.name,
            first_seed=strategy.space.seeds,
        )
