"""Fill the pages of results and the README's table from the stored numbers.

    python benchmarks/results_page.py            write them, and the figures into docs/results
    python benchmarks/results_page.py --check    only say whether they are up to date

Between ``<!-- NAME -->`` and ``<!-- /NAME -->`` everything is made by this script; all else on the
pages is written by people.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

import at_size_page
import auto_alpha_page
import auto_lr_page
import matrix_page
import noise_page
import sphere_page
from findings_page import findings, no_search, without_lr
from fixnorm.evidence.experiment import Exhibit
from fixnorm.evidence.experiments import DRAWN
from fixnorm.evidence.experiments.fig2 import Fig2
from fixnorm.evidence.experiments.forgiveness import Forgiveness
from fixnorm.evidence.experiments.table1 import Table1
from fixnorm.evidence.record import Record, about, exhibit_of, read_record
from fixnorm.report.drawing import png
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.tables import TextTable

ROOT = Path(__file__).parents[1]
STORED = ROOT / "results" / "reproduce"
REPLAYS = {
    "replay": ROOT / "results" / "replay" / "table.md",
    "random": ROOT / "results" / "replay" / "random.md",
}
PAGES = (
    *(
        ROOT / "docs" / name
        for name in ("results.md", "auto-lr.md", "at-size.md", "beyond-cnns.md")
    ),
    ROOT / "README.md",
)
FIGURES = ROOT / "docs" / "results"


def records() -> dict[str, Record]:
    """All that are stored, in the order of the experiments."""
    there = {name: STORED / f"{name}.json" for name in DRAWN}
    return {name: read_record(path) for name, path in there.items() if path.exists()}


def exhibits(stored: dict[str, Record]) -> dict[str, Exhibit]:
    """What each of them shows."""
    return {name: exhibit_of(record) for name, record in stored.items()}


def filled(text: str, makers: dict[str, Callable[[], str]]) -> str:
    """The text with every block made anew."""

    def block(found: re.Match[str]) -> str:
        name = found[1]
        if name not in makers:
            raise ValueError(f"no numbers for the block {name!r}: run fixnorm reproduce {name}")
        return f"<!-- {name} -->\n{makers[name]()}<!-- /{name} -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", block, text, flags=re.DOTALL)


def makers() -> dict[str, Callable[[], str]]:
    """By name, what fills a block."""
    stored = records()
    everything = exhibits(stored)

    def experiment(name: str) -> Callable[[], str]:
        return lambda: section(stored[name], everything[name])

    made = {name: experiment(name) for name in stored}
    made["claims"] = lambda: claims(everything)
    made["findings"] = lambda: findings(stored)
    made["readme"] = lambda: readme_table(stored)
    made["provenance"] = lambda: provenance(stored)
    made |= {name: partial(replayed, path) for name, path in REPLAYS.items()}
    pages = (auto_lr_page, auto_alpha_page, at_size_page, matrix_page, noise_page, sphere_page)
    for page in pages:
        made |= {name: partial(str, text) for name, text in page.blocks().items()}
    return made


def replayed(path: Path) -> str:
    """A table of ``fixnorm replay``, its headings as bold lines."""
    return re.sub(r"^## (.*)$", r"**\1**", path.read_text(), flags=re.MULTILINE)


def claims(everything: dict[str, Exhibit]) -> str:
    """All of them in one table."""
    rows = tuple(
        (f"[{name}](#{name})", claim.text, f"**{claim.verdict}**", claim.measured)
        for name, one in everything.items()
        for claim in one.claims
    )
    columns = ("experiment", "claim", "here", "measured")
    return TextTable("", columns, rows, words=4).markdown(title=False)


def section(record: Record, one: Exhibit) -> str:
    """Figures, tables and where they come from."""
    lines = [f"{about(record)}.", ""]
    for drawing in one.drawings:
        lines += [f"![{drawing.title}](results/{drawing.name}.png)", "", f"*{drawing.caption}*", ""]
    for table in one.tables:
        lines += [f"**{table.title}**", "", table.markdown(title=False)]
    commits = ", ".join(f"`{commit[:10]}`" for commit in record.trained_at)
    stored = f"[{record.experiment}.json](../results/reproduce/{record.experiment}.json)"
    lines += [
        f"`{record.command}`, or from {stored} in seconds: `fixnorm reproduce"
        f" {record.experiment} --from results/reproduce/{record.experiment}.json`. Trained at"
        f" {commits}.",
        "",
    ]
    return "\n".join(lines)


def provenance(stored: dict[str, Record]) -> str:
    """Versions, machine and time, of everything."""
    versions: dict[str, set[str]] = {}
    for record in stored.values():
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    hardware = sorted({device for record in stored.values() for device in record.hardware})
    told = ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in versions.items())
    trainings = sum(record.trainings for record in stored.values())
    hours = sum(record.seconds for record in stored.values()) / 3600
    return (
        f"{trainings} trainings, {hours:.1f} core-hours (some serve two experiments and are counted"
        f" twice), on {'; '.join(hardware)}. Versions: {told}.\n"
    )


def readme_table(stored: dict[str, Record]) -> str:
    """What a reader wants to know first."""
    rows: list[tuple[str, ...]] = []
    if "fig2" in stored:
        runs = Fig2.of(stored["fig2"].outcome).runs
        capped, free = ([r.score for r in runs if r.method == m] for m in ("fixnorm", "wn-fc"))
        rows.append(
            (
                "the cap on the head, little data",
                f"{mean_of(free).mean:.2f} (no cap)",
                f"{mean_of(capped).mean:.2f}",
                paired(capped, free).interval(),
                "a clear gap (Figure 2)",
            )
        )
    if "table1" in stored:
        rows.append(searched(Table1.of(stored["table1"].outcome)))
    if ours_and_theirs := without_lr().get("weight-decay"):
        ours_alone, theirs_alone = ours_and_theirs
        rows.append(
            (
                f"no search: lr by the rule, {len(ours_alone)} settings",
                f"{fmean(theirs_alone):.2f} (default λ)",
                f"{fmean(ours_alone):.2f}",
                paired(ours_alone, theirs_alone).interval(),
                "not there",
            )
        )
    if (difference := no_search("vit", "adamw")) is not None:
        tuned_adamw, free_of_search = (
            fmean(matrix_page.scores(matrix_page.finals(matrix_page.read(), "vit", side)))
            for side in ("adamw", "auto-muon")
        )
        rows.append(
            (
                "no search: small ViT, with Muon",
                f"{tuned_adamw:.2f} (AdamW, 8 T_max)",
                f"{free_of_search:.2f}",
                difference.interval(),
                "not there",
            )
        )
    if "forgiveness" in stored:
        rows.append(around_the_best(Forgiveness.of(stored["forgiveness"].outcome)))
    columns = ("accuracy (%)", "rival", "FixNorm", "FixNorm − rival (95 %)", "the paper, ImageNet")
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def around_the_best(found: Forgiveness) -> tuple[str, ...]:
    """The mean over both landscapes of what is found at places that are off the best."""
    sides = [[one.around(side) for one in found.landscapes] for side in ("fixnorm", "weight-decay")]
    ours, theirs = (
        fmean(one.top - lost.mean for one, lost in zip(found.landscapes, side, strict=True))
        for side in sides
    )
    errors = [lost.error / len(found.landscapes) for side in sides for lost in side]
    far = max(max(one.reach.lr, one.reach.level) for one in found.landscapes)
    gain = Mean(ours - theirs, None, 2 * math.hypot(*errors), 0)
    return (
        f"lr and alpha, or λ, off by up to {far:g}×, {len(found.landscapes)} landscapes",
        f"{theirs:.2f}",
        f"{ours:.2f}",
        f"{gain.interval()}, by noise",
        "not compared",
    )


def searched(found: Table1) -> tuple[str, ...]:
    """Plan auto beside a search for lr and weight decay, over all settings."""
    return (
        f"no search for lr: plan auto, {len(found.settings)} settings",
        f"{found.mean('weight-decay'):.2f} (tuned, {found.cost('weight-decay'):.3g} T_max)",
        f"{found.mean('auto'):.2f} ({found.cost('auto'):.2g} T_max)",
        found.difference("auto").interval(),
        "78.53 → 78.62 (11 T_max, ResNet50-D)",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    made = makers()
    old = {path: path.read_text() for path in PAGES}
    new = {path: filled(text, made) for path, text in old.items()}
    if given.check:
        stale = [path.name for path in old if old[path] != new[path]]
        print(json.dumps({"stale": stale}))
        sys.exit(1 if stale else 0)
    for path, text in new.items():
        path.write_text(text)
    FIGURES.mkdir(exist_ok=True)
    drawings = [drawing for one in exhibits(records()).values() for drawing in one.drawings]
    pages = (auto_lr_page, at_size_page, sphere_page, matrix_page)
    for drawing in (*drawings, *(page.drawing() for page in pages)):
        if drawing is not None:
            (FIGURES / f"{drawing.name}.png").write_bytes(png(drawing))


if __name__ == "__main__":
    main()
