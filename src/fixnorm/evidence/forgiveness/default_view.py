"""What one default loses over settings that differ: tables, claims and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean

from fixnorm.evidence.experiment import Claim, as_good, better
from fixnorm.evidence.forgiveness.cells import NAMES, RIVALS, SECOND, Setting, Side
from fixnorm.evidence.forgiveness.one_default import (
    Judged,
    Place,
    Way,
    aims,
    crossed,
    every_half,
    judged,
)
from fixnorm.evidence.noise import noise_of
from fixnorm.evidence.panels import COLOURS, Row, dots
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import paired
from fixnorm.report.style import SERIES
from fixnorm.report.tables import TextTable

__all__ = ["View"]

_COLOURS = {
    "fixnorm": COLOURS["fixnorm"],
    "auto": SERIES[2],
    "weight-decay": COLOURS["weight-decay"],
}


class View:
    """Of all settings; every other one is the first half."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.settings = settings
        self._tables = [setting.table for setting in settings]

    @cached_property
    def judged(self) -> dict[Side, Judged]:
        half = range(0, len(self.settings), 2)
        return {side: self._judged(crossed(half, len(self.settings)), side) for side in NAMES}

    def _judged(self, ways: Sequence[Way], side: Side) -> Judged:
        return judged(self._tables, ways, side, rivals=RIVALS)

    def tables(self) -> tuple[TextTable, TextTable]:
        return self._sides(), self._by_setting()

    def _sides(self) -> TextTable:
        rows, count = [], len(self.settings)
        for side, found in self.judged.items():
            every = [self._judged(crossed(half, count), side) for half in every_half(count)]
            known = self._judged([(range(count), range(count))], side)
            rows.append(
                (
                    NAMES[side],
                    self._named(side, found.defaults),
                    *map(_told, (found.mean, found.worst)),
                    *map(_told, (fmean(e.mean for e in every), fmean(e.worst for e in every))),
                    *map(_told, (known.mean, fmean(found.tuned))),
                )
            )
        first, second = (
            ", ".join(setting.name for setting in self.settings[start::2]) for start in (0, 1)
        )
        return TextTable(
            f"One default for {len(self.settings)} settings: what it loses (%)",
            (
                *("method", "defaults (times chosen)", "mean regret", "worst"),
                *("mean, all halves", "worst, all halves", "chosen on all", "tuned for each"),
            ),
            tuple(rows),
            (
                f"Chosen on one half, judged on the other, and the other way round: {first}; and"
                f" {second}. Chosen by one seed, judged by the other, and the other way round.",
                "Regret to what the best of both methods for the setting itself, chosen by the one"
                " seed, has by the other. All halves: the mean over all ways to halve the settings."
                " Chosen on all: by one seed on the very settings that judge by the other. Tuned"
                " for each: the method's own best for each setting, again by the other seed.",
                "*: an end of its grid.",
            ),
            words=2,
        )

    def _named(self, side: Side, defaults: Sequence[Place]) -> str:
        lrs, levels = (sorted({place[k] or 0.0 for place in self._tables[0][side]}) for k in (0, 1))
        words = []
        for (lr, level), times in Counter(defaults).items():
            rate = "" if lr is None else f"lr {lr:g}{_end(lr, lrs)}, "
            words.append(f"{rate}{SECOND[side]} {level:g}{_end(level, levels)} ({times})")
        return "; ".join(words)

    def _by_setting(self) -> TextTable:
        tops = aims(self._tables, rivals=RIVALS)
        rows = [
            (
                setting.name,
                f"{top:.2f}",
                *(_told(found.regrets[k]) for found in self.judged.values()),
                _noise(setting),
            )
            for k, (setting, top) in enumerate(zip(self.settings, tops, strict=True))
        ]
        means = (f"**{_told(found.mean)}**" for found in self.judged.values())
        rows.append(("**mean**", "", *means, ""))
        return TextTable(
            "The regret of each setting (%)",
            ("setting", "best of both (%)", *NAMES.values(), "noise of one training"),
            tuple(rows),
            ("A regret below zero: better than what tuning in the setting had chosen.",),
            words=1,
        )

    def claims(self) -> tuple[Claim, ...]:
        """The differences are paired by setting."""
        theirs, count = self.judged["weight-decay"].regrets, len(self.settings)
        text = f"One default for {count} settings loses less than one of weight decay"
        return (
            better(f"{text} (lr, alpha)", paired(theirs, self.judged["fixnorm"].regrets)),
            better(f"{text} (lr=auto, alpha)", paired(theirs, self.judged["auto"].regrets)),
            as_good(
                f"… and tuned for each of the {count} settings FixNorm is as good as weight decay",
                paired(self.judged["weight-decay"].tuned, self.judged["fixnorm"].tuned),
            ),
        )

    def drawing(self) -> Drawing:
        rows = [
            Row(NAMES[side], found.regrets, _COLOURS[side]) for side, found in self.judged.items()
        ]
        title = f"One default for {len(self.settings)} settings"
        return Drawing(
            "forgiveness-default",
            title,
            "Dots are settings that had no part in choosing the default, the bar is the 95 %"
            " interval of the mean.",
            (dots(title, rows, x="regret to the best of both (%)", width=460),),
        )


def _end(value: float, values: Sequence[float]) -> str:
    """Marks an end of the grid."""
    return "*" if len(values) > 1 and value in (values[0], values[-1]) else ""


def _told(regret: float) -> str:
    """With no sign at zero."""
    return f"{round(regret, 2) + 0.0:.2f}".replace("-", "−")


def _noise(setting: Setting) -> str:
    found = noise_of(setting.near_the_best())
    return "–" if found is None else f"{found.one:.2f}"
