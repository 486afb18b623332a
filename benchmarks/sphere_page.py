"""lr/‖W₀‖²: of the paper's Table 2, and of our own small settings, as tables and a figure.

    python benchmarks/sphere_page.py

``results_page.py`` puts the tables into docs/auto-lr.md and the figure beside it. The norms are
those of ``sphere_norms.py``, the small settings those of ``auto_lr.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from matplotlib.axes import Axes

import auto_lr_page
import sphere_norms
from auto_lr_settings import CHOOSING, JUDGING, Setting
from fixnorm import recipes
from fixnorm.evidence.panels import name_rows
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.style import MUTED, SERIES, breadth, dress, log_ticks, write
from fixnorm.report.tables import TextTable

EXPONENT = 0.4
"""Of the length, in the rule of the sphere."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """A learning rate that was tuned."""

    name: str
    family: str
    lr: float
    radius: float
    length: float
    """In steps; in the paper's table, where a step is the same everywhere, in epochs."""
    batch: int = 1024
    source: str = ""
    rule: float | None = None
    """The lr of the rule, where it was trained."""

    @property
    def effective(self) -> float:
        return self.lr / self.radius**2


# -- the paper's -----------------------------------------------------------------------------------


def of_the_paper() -> list[Best]:
    """The rows of Table 2, in its order."""
    norms = json.loads(sphere_norms.STORED.read_text())["norms"]
    rows = [recipes.get(name) for name in recipes.groups()["Table 2"]]
    return [
        Best(
            name=recipe.name.removesuffix(f"-{recipe.length}"),
            family="ResNet50-D" if recipe.model.startswith("resnet") else "mobile nets",
            lr=recipe.peak_lr,
            radius=fmean(norms[recipe.model]),
            length=recipe.length,
        )
        for recipe in rows
    ]


def groups(rows: Sequence[Best]) -> dict[str, list[Best]]:
    """By family and length."""
    found: dict[str, list[Best]] = {}
    for row in rows:
        found.setdefault(f"{row.family}, {row.length:g} epochs", []).append(row)
    return found


def paper_table() -> str:
    """Row by row."""
    rows = tuple(
        (
            f"`{row.name}`",
            f"{row.length:g}",
            f"{row.lr:g}",
            f"{row.radius:.1f}",
            f"{1e5 * row.effective:.2f}e-5",
        )
        for row in of_the_paper()
    )
    columns = ("model", "epochs", "tuned lr", "‖W₀‖", "lr/‖W₀‖²")
    return TextTable("", columns, rows, words=1).markdown(title=False)


def families_table() -> str:
    """What the rows of a family and a length have in common."""
    rows = []
    for name, found in groups(of_the_paper()).items():
        lrs, effective = [row.lr for row in found], [row.effective for row in found]
        shown = f"{1e5 * fmean(effective):.2f}e-5"
        rows.append(
            (name, str(len(found)), f"{fmean(lrs):.2f}", _spread(lrs), shown, _spread(effective))
        )
    columns = ("family", "rows", "lr", "± (largest/smallest)", "lr/‖W₀‖²", "± (largest/smallest)")
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def _spread(values: Sequence[float]) -> str:
    """The standard deviation in percent of the mean."""
    if len(values) < 2:
        return "–"
    share = 100 * stdev(values) / fmean(values)
    return f"{share:.0f} % ({max(values) / min(values):.2f})"


# -- our own ---------------------------------------------------------------------------------------


def of_small_settings() -> list[Best]:
    """Where the best lr is known: by a fit, or as Algorithm 4's winner. Momentum 0.9 alone."""
    results = auto_lr_page.Results(auto_lr_page.read())
    found = []
    for setting in (*CHOOSING, *JUDGING):
        known = _best_lr(results, setting) if setting.momentum == 0.9 else None
        if known is None:
            continue
        rows = [row for row in results.rows if row["setting"] == setting.name and row["radius"]]
        rule = [row["lr"][2] for row in results.of(setting.name, auto_lr_page.CHOSEN).values()]
        found.append(
            Best(
                name=setting.name,
                family=setting.net,
                lr=known,
                radius=fmean(row["radius"] for row in rows),
                length=results.steps(setting.name),
                batch=setting.batch,
                source="fit" if setting in CHOOSING else "Algorithm 4",
                rule=fmean(rule) if rule else None,
            )
        )
    return found


def _best_lr(results: auto_lr_page.Results, setting: Setting) -> float | None:
    if setting in JUDGING:
        return auto_lr_page.tuned_lr(results, setting.name)
    found = auto_lr_page.curve(results, setting.name)
    return None if found is None else math.exp(found.peak)


def small_table() -> str:
    """Setting by setting."""
    rows = tuple(
        (
            best.name,
            f"`{best.family}`",
            best.source,
            f"{best.batch:,}",
            f"{best.length:,}",
            f"{best.radius:.1f}",
            f"{best.lr:.2g}",
            f"{1e3 * best.effective:.2f}e-3",
            "–" if best.rule is None else f"{best.lr / best.rule:.2f}",
        )
        for best in of_small_settings()
    )
    columns = (
        *("setting", "net", "best lr by", "batch", "T", "‖W‖", "best lr", "lr/‖W‖²"),
        "best lr / the rule's",
    )
    return TextTable("", columns, rows, words=3).markdown(title=False)


# -- what transfers --------------------------------------------------------------------------------


QUANTITIES: dict[str, Callable[[Best], float]] = {
    "lr": lambda best: best.lr,
    "lr/‖W‖²": lambda best: best.effective,
    f"lr·T^{EXPONENT:g}": lambda best: best.lr * best.length**EXPONENT,
    f"lr·T^{EXPONENT:g}/‖W‖²": lambda best: best.effective * best.length**EXPONENT,
}
RULE = "lr / the rule's lr"


def spread_table() -> str:
    """By which factor the best lr of one setting is off for another, in several units."""
    paper, small = of_the_paper(), of_small_settings()
    known = [best for best in small if best.rule is not None]
    sides = {
        "mobile nets, 350 epochs": groups(paper)["mobile nets, 350 epochs"],
        "all of Table 2": paper,
        "small settings": known,
        "of these ResNets": [best for best in known if best.family.startswith("resnet")],
    }
    rows = [
        (unit, *(_factor([of(best) for best in found]) for found in sides.values()))
        for unit, of in QUANTITIES.items()
    ]
    ratios = [
        _factor([best.lr / best.rule for best in found if best.rule is not None])
        for found in list(sides.values())[2:]
    ]
    rows.append((RULE, "–", "–", *ratios))
    columns = ("unit", *(f"{name} ({len(found)})" for name, found in sides.items()))
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def _factor(values: Sequence[float]) -> str:
    """One standard deviation of the logarithm."""
    return f"×÷ {math.exp(stdev(map(math.log, values))):.2f}"


def exponents_table() -> str:
    """lr ∝ ‖W‖^2a · T^b · batch^c, by least squares in logarithms."""
    paper = [best for best in of_the_paper() if best.family == "mobile nets"]
    small = of_small_settings()
    rows = []
    for name, found, axes in (
        ("the mobile nets of Table 2", paper, 2),
        ("small settings", small, 3),
        ("of these ResNets", [best for best in small if best.family.startswith("resnet")], 3),
    ):
        rows.append((name, str(len(found)), *_exponents(found, axes)))
    columns = ("from", "rows", "a, of ‖W‖²", "b, of T", "c, of the batch")
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def _exponents(found: Sequence[Best], axes: int) -> tuple[str, ...]:
    """With their 95 % intervals."""
    from scipy.stats import t

    terms = np.log([[best.radius**2, best.length, best.batch][:axes] for best in found])
    terms = np.column_stack([terms, np.ones(len(found))])
    y = np.log([best.lr for best in found])
    slopes = np.linalg.lstsq(terms, y, rcond=None)[0]
    freedom = len(found) - terms.shape[1]
    variance = float(((y - terms @ slopes) ** 2).sum()) / freedom
    errors = np.sqrt(variance * np.diag(np.linalg.inv(terms.T @ terms)))
    quantile = float(t.ppf(0.975, freedom))
    shown = [
        f"{slope:+.2f} ± {quantile * error:.2f}".replace("-", "−")
        for slope, error in zip(slopes[:axes], errors, strict=False)
    ]
    return (*shown, *(["–"] * (3 - axes)))


PAIRS = (
    ("width 4 → 16", "4-wide", "16-wide"),
    ("depth 8 → 14", "momentum-0.9", "resnet14d"),
    ("length 2,500 → 10,000", "2500-steps", "10000-steps"),
    ("batch 64 → 1,024, T 1,170 → 285", "momentum-0.9", "batch-1024"),
)
"""Small settings that differ in little else."""


def pairs_table() -> str:
    """From one setting to another: the factors of the best lr, of ‖W‖², and of what is left."""
    known = {best.name: best for best in of_small_settings()}
    rows = []
    for words, one, other in PAIRS:
        first, second = known[one], known[other]
        factors = (
            second.lr / first.lr,
            (second.radius / first.radius) ** 2,
            second.effective / first.effective,
        )
        rows.append((words, f"{one}, {other}", *(f"{factor:.2f}" for factor in factors)))
    columns = ("from … to", "settings", "best lr", "‖W‖²", "lr/‖W‖²")
    return TextTable("", columns, tuple(rows), words=2).markdown(title=False)


BESIDE = {
    "resnet8-s2": ("right", 5.0),
    "resnet14d-w8": ("right", -2.0),
    "resnet20-w8": ("left", -8.0),
}
"""Where the name of a net stands, if not right of its highest dot."""


# -- the figure ------------------------------------------------------------------------------------


def drawing() -> Drawing:
    """Table 2 on the left, the small settings on the right."""
    rows = of_the_paper()
    left = max(breadth(_row_name(row)) for row in rows)
    paper = Panel("Table 2", _draw_paper, width=430, height=250, left=left, right=10, bottom=34)
    small = Panel(
        "Small settings", _draw_small, width=430, height=250, left=46, right=14, bottom=34
    )
    return Drawing("sphere", "lr/‖W‖²", "", (paper, small), columns=2)


def _row_name(row: Best) -> str:
    return f"{row.name}, {row.length:g} epochs"


def _draw_paper(ax: Axes) -> None:
    rows = of_the_paper()
    places = {row: len(rows) - 1 - k for k, row in enumerate(rows)}
    for found, colour in zip(groups(rows).values(), SERIES, strict=False):
        values = [1e5 * row.effective for row in found]
        at = [places[row] for row in found]
        if len(found) > 1:
            mean, spread = fmean(values), stdev(values)
            ax.fill_betweenx(
                [min(at) - 0.4, max(at) + 0.4],
                mean - spread,
                mean + spread,
                color=colour,
                alpha=0.15,
            )
        ax.plot(values, at, ls="none", marker="o", ms=5, color=colour)
        for value, y, row in zip(values, at, found, strict=True):
            write(ax, f"lr {row.lr:g}", (value, y), offset=(8, 0), colour=colour, align="left")
    ax.set_xlim(0, 3.6)
    dress(ax, title="The paper's Table 2: tuned lr/‖W₀‖²", x="lr/‖W₀‖² (1e-5)")
    name_rows(ax, [_row_name(row) for row in reversed(rows)])


def _draw_small(ax: Axes) -> None:
    found, of = of_small_settings(), QUANTITIES[f"lr·T^{EXPONENT:g}"]
    ax.set_xscale("log")
    ax.set_yscale("log")
    nets: dict[str, list[Best]] = {}
    for best in found:
        nets.setdefault(best.family, []).append(best)
    for net, mine in nets.items():
        colour = SERIES[1] if net.startswith("micronet") else SERIES[0]
        x, y = [best.radius for best in mine], [of(best) for best in mine]
        ax.plot(x, y, ls="none", marker="o", ms=4, color=colour)
        side, up = BESIDE.get(net, ("left", 0))
        at, away = (x[y.index(max(y))], max(y)), 6 if side == "left" else -6
        write(ax, net, at, offset=(away, up), colour=colour, align=side)
    xs, ys = [best.radius for best in found], [of(best) for best in found]
    middle, ends = (_middle(xs), _middle(ys)), (min(xs), max(xs))
    ax.plot(ends, [middle[1]] * 2, color=MUTED, lw=0.8)
    ax.plot(ends, [middle[1] * (e / middle[0]) ** 2 for e in ends], color=MUTED, lw=0.8, ls="--")
    write(ax, "lr alike", (ends[1], middle[1]), offset=(6, 0), colour=MUTED, align="left")
    top = ends[1], middle[1] * (ends[1] / middle[0]) ** 2
    write(ax, "lr/‖W‖² alike", top, offset=(6, 0), colour=MUTED, align="left")
    ax.set_xlim(0.9 * ends[0], 1.6 * ends[1])
    dress(ax, title="Small settings", x="‖W‖", y=f"best lr · T^{EXPONENT:g}")
    for axis in ("x", "y"):
        log_ticks(ax, axis)


def _middle(values: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def blocks() -> dict[str, str]:
    """What results_page.py fills in, by the name of the block."""
    return {
        "sphere-paper": paper_table(),
        "sphere-families": families_table(),
        "sphere-small": small_table(),
        "sphere-spread": spread_table(),
        "sphere-exponents": exponents_table(),
        "sphere-pairs": pairs_table(),
    }


if __name__ == "__main__":
    for name, text in blocks().items():
        print(f"{name}\n\n{text}")
