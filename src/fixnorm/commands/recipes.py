"""``fixnorm recipes``: what can be trained by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer


def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """List the recipes with their model's cost and the paper's learning rate, alpha and accuracy.

    Example: fixnorm recipes, then fixnorm train digits --out runs/digits
    """
    from fixnorm.recipes import groups

    rows = [_row(name, group) for group, names in groups().items() for name in names]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print(rows)


def _row(name: str, group: str) -> dict[str, Any]:
    from fixnorm.recipes import get
    from fixnorm.recipes.costs import COSTS
    from fixnorm.training.kinds import metric_of

    recipe, reference, cost = get(name), get(name, "weight-decay"), COSTS[name]
    return {
        "name": name,
        "group": group,
        "model": recipe.model,
        "data": recipe.data,
        "task": recipe.task,
        "metric": metric_of(recipe).title,
        "image_size": list(cost.size),
        "params": cost.params,
        "macs": cost.conv_macs,  # as the paper counts: without the head
        "macs_with_head": cost.macs,
        "length": recipe.length,
        "unit": recipe.unit,
        "batch_size": recipe.batch_size,
        "lr": recipe.lr,
        "alpha": recipe.alpha,
        "reference_lr": reference.lr,
        "reference_weight_decay": reference.weight_decay,
        "paper_score": recipe.paper_score,
        "paper_reference_score": recipe.paper_reference_score,
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)  # a pipe or a file has no width: cut nothing
    columns = {header: cell for header, cell in _CELLS.items() if header != "model"}
    if console.width >= _WIDE:
        columns = _CELLS
    table = Table(box=None, pad_edge=False)
    for header in columns:
        left = header in ("recipe", "model")
        table.add_column(header, justify="left" if left else "right", no_wrap=True)
    group = rows[0]["group"]
    for row in rows:
        if row["group"] != group:
            table.add_row()
        group = row["group"]
        table.add_row(*(cell(row) for cell in columns.values()))
    console.print(table)
    console.print(f"\n{_LEGEND}", style="dim", highlight=False)


def _short(count: int) -> str:
    """25,576,264 as 25.6M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            return f"{count / size:.{digits}f}{unit}"
    return str(count)


def _length(length: int, unit: str) -> str:
    if unit == "epochs":
        return f"{length} ep"
    return f"{length // 1000}k it" if length % 1000 == 0 else f"{length} it"


def _percent(top1: float | None) -> str:
    return "–" if top1 is None else f"{top1:.2f}"


_CELLS: dict[str, Callable[[dict[str, Any]], str]] = {
    "recipe": lambda row: str(row["name"]),
    "model": lambda row: str(row["model"]),
    "params": lambda row: _short(row["params"]),
    "MACs": lambda row: _short(row["macs"]),
    "T_max": lambda row: _length(row["length"], row["unit"]),
    "lr": lambda row: f"{row['lr']:g}",
    "alpha": lambda row: f"{row['alpha']:g}",
    "paper": lambda row: _percent(row["paper_score"]),
    "ref.": lambda row: _percent(row["paper_reference_score"]),
}
_WIDE = 104
"""Columns of a terminal from which on the model has room."""
_LEGEND = (
    "lr and alpha are FixNorm's. T_max: epochs (ep) or iterations (it). paper: what it reports for "
    "FixNorm, in percent (top-1, mIoU or AP); ref.: for the reference setting. MACs: multiply-adds "
    "of one image's convolutions, without a linear head."
)
