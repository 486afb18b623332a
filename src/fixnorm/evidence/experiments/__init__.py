"""The experiments by name: a new one is a class in a file of its own, and a line here."""

from fixnorm.evidence.experiment import DrawnExperiment, Experiment
from fixnorm.evidence.experiments.dense import Table3, Table4
from fixnorm.evidence.experiments.fig1 import Fig1
from fixnorm.evidence.experiments.fig2 import Fig2
from fixnorm.evidence.experiments.fig4 import Fig4, Recordings
from fixnorm.evidence.experiments.peers import Peers
from fixnorm.evidence.experiments.table1 import Table1
from fixnorm.evidence.experiments.table2 import Table2

__all__ = ["DRAWN", "EXPERIMENTS"]

EXPERIMENTS: dict[str, type[Experiment]] = {
    "fig1": Fig1,
    "fig2": Fig2,
    "fig4": Fig4,
    "table1": Table1,
    "table2": Table2,
    "table3": Table3,
    "table4": Table4,
    "peers": Peers,
    "landscapes": Recordings,
}
DRAWN: dict[str, type[DrawnExperiment]] = {
    name: kind for name, kind in EXPERIMENTS.items() if issubclass(kind, DrawnExperiment)
}
"""All but the recordings, which ``fixnorm replay`` draws on."""
