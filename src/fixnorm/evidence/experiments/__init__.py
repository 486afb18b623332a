"""The experiments by name: a new one is a class in a file of its own, and a line here.

The file of an experiment is imported when the experiment is asked for, as what it draws with is
slow to load: a name that is wrong is refused before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from fixnorm.system.nearest import did_you_mean

if TYPE_CHECKING:
    from fixnorm.evidence.experiment import DrawnExperiment, Experiment

__all__ = ["DRAWN", "EXPERIMENTS", "names_of"]

K = TypeVar("K", bound="Experiment")

_PLACES = {
    "fig1": "fig1:Fig1",
    "fig2": "fig2:Fig2",
    "fig4": "fig4:Fig4",
    "table1": "table1:Table1",
    "table2": "table2:Table2",
    "table3": "dense:Table3",
    "table4": "dense:Table4",
    "peers": "peers:Peers",
    "forgiveness": "forgiveness:Forgiveness",
    "landscapes": "fig4:Recordings",
}
_SAME = {"fig5": "table1"}
"""Drawn from the same trainings."""


class _Classes(MutableMapping[str, type[K]]):
    """Classes by name, each imported from its place when it is first asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._known: dict[str, type[K] | str] = dict(places)

    def __getitem__(self, name: str) -> type[K]:
        known = self._known[name]
        if isinstance(known, str):
            module, _, kind = known.partition(":")
            found: type[K] = getattr(import_module(f"{__name__}.{module}"), kind)
            self._known[name] = known = found
        return known

    def __setitem__(self, name: str, kind: type[K]) -> None:
        self._known[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known  # without a look at the class

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


EXPERIMENTS: _Classes[Experiment] = _Classes(_PLACES)
DRAWN: _Classes[DrawnExperiment] = _Classes(
    {name: place for name, place in _PLACES.items() if name != "landscapes"}
)
"""All but the recordings, which ``fixnorm replay`` draws on."""


def names_of(given: Iterable[str]) -> list[str]:
    """The experiments that are meant, each once."""
    given = list(given)
    if "all" in given:
        return list(EXPERIMENTS)
    names = [_SAME.get(name, name) for name in given]
    for name in names:
        if name not in EXPERIMENTS:
            known = [*EXPERIMENTS, *_SAME, "all"]
            raise ValueError(f"no experiment {name!r}; {did_you_mean(name, known)}")
    return list(dict.fromkeys(names))
