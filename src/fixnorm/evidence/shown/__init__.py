"""How each experiment is shown, from its stored numbers alone."""

from collections.abc import Callable, Mapping
from typing import Any

from fixnorm.evidence.shown import fig1, fig2, fig4, peers, table1, table2
from fixnorm.evidence.shown.dense import show_table3, show_table4
from fixnorm.evidence.shown.shown import Claim, Shown

__all__ = ["SHOW", "Claim", "Shown"]

SHOW: dict[str, Callable[[Mapping[str, Any]], Shown]] = {
    "fig1": fig1.show,
    "fig2": fig2.show,
    "fig4": fig4.show,
    "table1": table1.show,
    "table2": table2.show,
    "table3": show_table3,
    "table4": show_table4,
    "peers": peers.show,
}
