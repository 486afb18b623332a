"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fixnorm.evidence.experiments.dense import table3, table4
from fixnorm.evidence.experiments.fig1 import fig1
from fixnorm.evidence.experiments.fig2 import fig2
from fixnorm.evidence.experiments.fig4 import fig4, landscapes
from fixnorm.evidence.experiments.peers import peers
from fixnorm.evidence.experiments.table1 import table1
from fixnorm.evidence.experiments.table2 import table2
from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale

__all__ = ["EXPERIMENTS", "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """What is run, and what it is about."""

    title: str
    run: Callable[[Lab, Scale], dict[str, Any]]

    def at(self, scale: Scale) -> Callable[[Lab], dict[str, Any]]:
        """At some scale."""
        return lambda lab: self.run(lab, scale)


EXPERIMENTS = {
    "fig1": Experiment("Figure 1: fixing the norm of W^Conv in place of weight decay", fig1),
    "fig2": Experiment("Figure 2: the scale of the head and the cross-boundary risk", fig2),
    "fig4": Experiment("Figure 4: are lr and alpha independent?", fig4),
    "table1": Experiment("Table 1, Figure 5: tuned FixNorm against BO + weight decay", table1),
    "table2": Experiment("Table 2: several models, each tuned", table2),
    "table3": Experiment("Segmentation (appendix)", table3),
    "table4": Experiment("Detection (appendix)", table4),
    "peers": Experiment("FixNorm among its peers, at the same tuning budget", peers),
    "landscapes": Experiment("Recordings for fixnorm replay", landscapes),
}
