"""Numbers as people read them."""

from __future__ import annotations

import re

from fixnorm.tuning.plans import TITLES
from fixnorm.tuning.trial import StudyRecord, Trial, shown_lr

METHODS = {"fixnorm": "FixNorm", "bo-weight-decay": "weight decay"}


def bare(value: float, metric: str) -> str:
    """A value of the metric without its unit, for places where the axis has it."""
    return f"{value:.2f}" if "%" in metric else f"{value:.4g}"


def valued(value: float, metric: str) -> str:
    """The same with its unit, never parted from it: ``"78.62 %"``."""
    return bare(value, metric) + ("\N{NO-BREAK SPACE}%" if "%" in metric else "")


def metric_name(metric: str) -> str:
    """The metric without its unit."""
    return metric.replace("(%)", "").strip() or metric


def weight_decay(value: float) -> str:
    """With two digits at most: ``"2.3e-4"``."""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def choice(trial: Trial) -> str:
    """What is tuned: ``"lr 1.4, alpha 2"``."""
    said = [f"lr {shown_lr(trial.lr, '.3g')}"]
    if trial.alpha is not None:
        said.append(f"alpha {trial.alpha:g}")
    if trial.weight_decay is not None:
        said.append(f"weight decay {weight_decay(trial.weight_decay)}")
    return ", ".join(said)


def length(fraction: float) -> str:
    """A length or cost in T_max, without the unit."""
    return f"{fraction:.4g}"


def span(fraction: float) -> str:
    """The same with the unit: ``"0.2 T_max"``, ``"T_max"``."""
    return "T_max" if fraction == 1 else f"{length(fraction)} T_max"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, the two largest: ``"2 min 5 s"``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def slug(text: str) -> str:
    """A text as part of ids and file names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]


def title_of(study: StudyRecord) -> str:
    """Method and strategy: ``"FixNorm, paper's plan"``."""
    method = METHODS.get(study.method, study.method)
    return f"{method}, {TITLES.get(study.strategy, study.strategy)}"
