"""How figures look: colours that colour-blind people can tell apart, few lines, direct labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

# These four are replaced by variables of the page, which knows light and dark.
INK, MUTED, GRID, PAPER = "#1f2328", "#5f6872", "#e3e6ea", "#fefefe"

PRIMARY, ACCENT = "#0072b2", "#d55e00"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#b8609a", "#b58900", "#3f9fd8")
"""After Okabe and Ito, the light ones darkened for text."""

RAMP = LinearSegmentedColormap.from_list(
    "blue to gold", ("#1f5fa8", "#7d6aa8", "#c2607a", "#d9762b", "#d99a00")
)
"""Blue to gold, lighter all the way: its order survives every kind of colour blindness."""

FONT_SIZE = 8.0
SMALL = 7.0
LEAST_SPAN = 0.1
"""Of a scale of colours: values that are equal to this are one colour."""
LINE = 9.0
"""The height of a line of labels, in points."""


def ramp(count: int) -> tuple[str, ...]:
    """So many colours in order."""
    if count == 1:
        return (PRIMARY,)
    return tuple(to_hex(RAMP(k / (count - 1))) for k in range(count))


def dress(ax: Axes, *, title: str = "", x: str = "", y: str = "") -> None:
    """Two spines, a faint grid, words left-aligned above."""
    ax.set_facecolor("none")
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)
        spine.set_linewidth(0.6)
    ax.tick_params(colors=MUTED, labelsize=SMALL, width=0.6, length=2.5, pad=2)
    ax.grid(axis="y", color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    if title:
        size = FONT_SIZE + 0.5
        ax.set_title(
            title, loc="left", fontsize=size, fontweight="bold", color=INK, pad=8, parse_math=False
        )
    if x:
        ax.set_xlabel(x, fontsize=FONT_SIZE, color=INK, labelpad=3, parse_math=False)
    if y:
        ax.set_ylabel(y, fontsize=FONT_SIZE, color=INK, labelpad=4, parse_math=False)
    if ax.get_yscale() == "linear" and len(ax.get_yticks()):
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def log_ticks(ax: Axes, axis: str) -> None:
    """1, 2, 5 of each decade, written shortly."""
    chosen = ax.xaxis if axis == "x" else ax.yaxis
    chosen.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=20))
    chosen.set_minor_locator(NullLocator())
    chosen.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """A number for an axis: ``0.2``, ``5e-5``."""
    if 1e-2 <= abs(value) < 1e4:
        return f"{value:g}"
    digits, exponent = f"{value:.0e}".split("e")
    return f"{digits}e{int(exponent)}"


def colour_bar(
    ax: Axes, colours: ScalarMappable, label: str, *, extend: str = "neither", ticks: int = 4
) -> None:
    """A slim scale right of the axes."""
    bar = ax.figure.colorbar(colours, cax=ax.inset_axes((1.03, 0, 0.03, 1)), extend=extend)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=MUTED, labelsize=SMALL, width=0.5, length=2, pad=2)
    bar.ax.yaxis.set_major_locator(MaxNLocator(ticks))
    bar.ax.set_ylabel(label, fontsize=SMALL, color=MUTED, labelpad=3, parse_math=False)


def breadth(text: str) -> float:
    """About how wide a label is, in points."""
    return 3.8 * len(text) + 8


def room(
    ax: Axes, values: Sequence[float], *, below: float = 0.15, above: float = 0.2, least: float = 0
) -> None:
    """Limits of y around the values, with room for labels; ``least`` is the smallest span."""
    if not values:
        ax.set_ylim(0, 1)
        ax.set_yticks([])
        return
    low, high = min(values), max(values)
    span = max(high - low, least, 1e-3 * max(abs(low), abs(high)), 1e-9)
    middle = (low + high) / 2
    ax.set_ylim(middle - span * (0.5 + below), middle + span * (0.5 + above))


def write(
    ax: Axes,
    text: str,
    at: tuple[float, float],
    *,
    offset: tuple[float, float] = (0, 0),
    colour: str = INK,
    align: str = "center",
    bold: bool = False,
    on: str = "data",
    shield: bool = False,
) -> None:
    """Words at a point, moved by points of type; ``on``: ``"data"``, or ``"foot"`` (y of axes).

    ``shield`` dims what is behind them.
    """
    box = {"boxstyle": "square,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.8}
    foot = blended_transform_factory(ax.transData, ax.transAxes)
    ax.annotate(
        text, at, xycoords=ax.transData if on == "data" else foot, xytext=offset,
        textcoords="offset points", ha=align, va="center", fontsize=SMALL, color=colour,
        fontweight="bold" if bold else "normal", parse_math=False, annotation_clip=False,
        bbox=box if shield else None, zorder=6,
    )  # fmt: skip


@dataclass(frozen=True)
class EndLabel:
    """The name of a curve beside its end."""

    y: float
    text: str
    colour: str


def end_labels(
    ax: Axes,
    labels: Sequence[EndLabel],
    *,
    height: float,
    limits: tuple[float, float] | None = None,
) -> None:
    """Names right of the axes, pushed apart so that none covers another.

    ``height`` is that of the axes in points; the limits of y must be set, or given where the scale
    is not linear.
    """
    if not labels:
        return
    low, high = limits or ax.get_ylim()
    ordered = sorted(labels, key=lambda label: label.y)
    wanted = [min(max((label.y - low) / (high - low), 0), 1) for label in ordered]
    for label, y in zip(ordered, apart(wanted, LINE / height), strict=True):
        ax.text(
            1.02, y, label.text, transform=ax.transAxes, ha="left", va="center", fontsize=SMALL,
            color=label.colour, parse_math=False,
        )  # fmt: skip


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Increasing places in [0, 1] at least ``gap`` apart, as near to the wanted ones as can be.

    Neighbours that would touch become a block around the mean of what they want.
    """
    blocks: list[list[float]] = []
    for place in wanted:
        blocks.append([place])
        while len(blocks) > 1 and _start(blocks[-1], gap) - _end(blocks[-2], gap) < gap - 1e-12:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_start(block, gap) + k * gap for block in blocks for k in range(len(block))]


def _start(block: Sequence[float], gap: float) -> float:
    length = (len(block) - 1) * gap
    return max(min(sum(block) / len(block) - length / 2, 1 - length), 0)


def _end(block: Sequence[float], gap: float) -> float:
    return _start(block, gap) + (len(block) - 1) * gap
