"""The findings that docs/results.md begins with, their numbers taken from what is stored.

``results_page.py`` puts them into the page. A finding whose numbers are not stored is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import auto_lr_page
import matrix_page
from auto_lr_page import CHOSEN, TUNED
from auto_lr_settings import JUDGING
from fixnorm.evidence.experiments.fig2 import Fig2
from fixnorm.evidence.experiments.forgiveness import Forgiveness
from fixnorm.evidence.experiments.table1 import Table1
from fixnorm.evidence.experiments.table2 import BUDGET, Table2
from fixnorm.evidence.record import Record
from fixnorm.report.statistics import Mean, paired

__all__ = ["findings", "no_search", "without_lr"]


def findings(stored: Mapping[str, Record]) -> str:
    """Each a heading, a few sentences and a picture."""
    told = [*_head(stored), *_rule(), *_transformers(), *_tuning(stored), *_forgiveness(stored)]
    parts = [
        f"**{n}. {heading}** {text}\n\n![{heading}](results/{picture}.png)\n"
        for n, (heading, text, picture) in enumerate(told, 1)
    ]
    return "\n".join(parts)


Finding = tuple[str, str, str]
"""A heading that says it, the numbers, and the name of a picture."""


def _head(stored: Mapping[str, Record]) -> Iterator[Finding]:
    if "fig2" not in stored:
        return
    runs = Fig2.of(stored["fig2"].outcome).runs
    capped, free = ([r for r in runs if r.method == m] for m in ("fixnorm", "wn-fc"))
    difference = paired([r.score for r in capped], [r.score for r in free])
    yield (
        "A head without a bound costs accuracy.",
        f"Trained long on little data, the cap on g brings {difference.interval()} % over none: "
        "g grows several times past the cap, and features lean further over the boundaries between "
        "classes, as the paper says. [Figure 2](#fig2)",
        "fig2",
    )


def without_lr() -> dict[str, tuple[list[float], list[float]]]:
    """Of every side: the rule's accuracies over the judged settings, and the side's."""
    results = auto_lr_page.Results(auto_lr_page.read())
    judged = auto_lr_page.judged(results, [setting.name for setting in JUDGING]).values()
    sides = next(iter(judged)).values if judged else {}
    return {s: ([j.mean(CHOSEN) for j in judged], [j.mean(s) for j in judged]) for s in sides}


def _rule() -> Iterator[Finding]:
    pairs = without_lr()
    against = {side: paired(*pair).interval() for side, pair in pairs.items()}
    if against:
        yield (
            "The learning rate of an SGD needs no search.",
            f"Over {len(pairs[CHOSEN][0])} classification settings that took no part in choosing "
            "its constants, one training by the rule of the sphere is level with the winner of "
            f"Algorithm 4, which takes eight: {against[TUNED]} %. Against SGD with default weight "
            f"decay it is {against['weight-decay']} %, against Prodigy {against['prodigy']}, "
            f"against DoG {against['dog']}, against schedule-free SGD "
            f"{against['schedule-free-lr5']}. Dots are settings, the bar is the 95 % "
            "interval of their mean. "
            "[More](auto-lr.md)",
            "auto-lr",
        )


def no_search(task: str, rival: str) -> Mean | None:
    """Scope matrix with Muon and no search, beside a tuned rival; higher is better."""
    rows = matrix_page.read()
    ours, theirs = (
        matrix_page.scores(matrix_page.finals(rows, task, side)) for side in ("auto-muon", rival)
    )
    return paired(ours, theirs) if ours and theirs else None


def _transformers() -> Iterator[Finding]:
    tasks = {"convnext": "ConvNeXt", "vit": "ViT", "gpt": "GPT", "gpt-tied": "GPT, tied head"}
    told: dict[str, list[str]] = {"adamw": [], "muon": []}
    for rival, words in told.items():
        for task, name in tasks.items():
            found = no_search(task, rival)
            digits, unit = (3, "nats") if task.startswith("gpt") else (2, "%")
            if found is not None:
                words.append(f"{name} {found.interval(digits)} {unit}")
    if all(told.values()):
        yield (
            "Nor does that of a transformer, with Muon.",
            "Each matrix on a sphere of its own, an angle of c/√T, Muon for the hidden matrices: "
            "one training is ahead of AdamW with weight decay tuned for eight trainings "
            f"({'; '.join(told['adamw'])}). Muon with weight decay, tuned as long, is nearer "
            f"({'; '.join(told['muon'])}). Three seeds, small nets. [More](beyond-cnns.md)",
            "beyond-cnns",
        )


def _tuning(stored: Mapping[str, Record]) -> Iterator[Finding]:
    if not {"table1", "table2"} <= stored.keys():
        return
    searched = Table1.of(stored["table1"].outcome)
    tuned = Table2.of(stored["table2"].outcome)
    told = {way: (searched.cost(way), searched.difference(way).interval()) for way in searched.ours}
    if "auto" not in told or tuned.without_search is None:
        return
    yield (
        "Two to three trainings are level with twenty-five of a search for weight decay.",
        f"On {len(searched.settings)} settings FixNorm by plan auto, lr by the rule and alpha by "
        f"branches, is level at {told['auto'][0]:.2g} T_max with weight decay searched for at "
        f"{searched.cost('weight-decay'):.3g}: {told['auto'][1]} %. By Algorithm 4, at "
        f"{told['paper'][0]:.2g}, it is {told['paper'][1]} %. On {len(tuned.models)} small models, "
        f"beside weight decay tuned for {BUDGET} trainings, plan auto is "
        f"{tuned.without_search.interval()} % and Algorithm 4 {tuned.searched.interval()} %: "
        "tuning buys nothing over weight decay that is tuned as well. [Table 1](#table1)",
        searched.show().drawings[0].name,
    )


def _forgiveness(stored: Mapping[str, Record]) -> Iterator[Finding]:
    if "forgiveness" not in stored:
        return
    found = Forgiveness.of(stored["forgiveness"].outcome)
    around = {
        side: [one.around(side) for one in found.landscapes] for side in ("fixnorm", "weight-decay")
    }
    mean = {side: _list(lost.mean for lost in losses) for side, losses in around.items()}
    worst = {side: _list(lost.worst for lost in losses) for side, losses in around.items()}
    default = next(claim for claim in found.show().claims if "lr=auto" in claim.text)
    yield (
        "A wrong number costs half as much as with weight decay.",
        f"Around its best lr and alpha, over the same factors up and down, FixNorm loses "
        f"{mean['fixnorm']} % on average and {worst['fixnorm']} % at worst on "
        f"{' and '.join(one.name for one in found.landscapes)}, weight decay around its best lr "
        f"and λ {mean['weight-decay']} and {worst['weight-decay']} %. One default for "
        f"{len(found.settings)} settings: weight decay's loses more than lr=auto's by "
        f"{default.measured}. "
        "[More](#forgiveness)",
        "forgiveness",
    )


def _list(numbers: Iterable[float]) -> str:
    return " and ".join(f"{number:.1f}" for number in numbers)
