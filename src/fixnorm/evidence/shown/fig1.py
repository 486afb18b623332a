"""Figure 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fixnorm.evidence.shown.colours import COLOURS, NAMES
from fixnorm.evidence.shown.lines import Line, lines
from fixnorm.evidence.shown.shown import Claim, Shown, at_least
from fixnorm.evidence.shown.stored import Fig1, NormRun, Point
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.tables import TextTable

__all__ = ["show"]

_EARLY = 0.2
"""The share of training in which the paper sees the norm fall fast."""


def show(content: Mapping[str, Any]) -> Shown:
    """The norm under weight decay; accuracy over learning rates."""
    outcome = Fig1.of(content)
    points = outcome.points
    by_method = {
        method: [p for p in points if p.method == method]
        for method in dict.fromkeys(p.method for p in points)
    }
    best = {method: _best(found) for method, found in by_method.items()}
    lr = outcome.default_lr
    norms = {
        decay: [run for run in outcome.norms if run.weight_decay == decay]
        for decay in dict.fromkeys(run.weight_decay for run in outcome.norms)
    }
    colours = (COLOURS["weight-decay"], COLOURS["wn-fc"])
    norm_panel = lines(
        f"‖W^Conv‖ under weight decay (lr {lr:g})",
        [
            _norm_line(runs, f"λ {decay:g}", colour)
            for (decay, runs), colour in zip(norms.items(), colours, strict=False)
        ],
        x="epoch",
        y="‖W^Conv‖",
    )
    accuracy = lines(
        "Accuracy over learning rates",
        [
            _accuracy_line(found, NAMES[method], COLOURS[method])
            for method, found in by_method.items()
        ],
        x="learning rate",
        y="accuracy (%)",
        log=True,
    )
    drawing = Drawing(
        "fig1",
        "Figure 1",
        "Left: the joint norm of all convolution weights, each seed. Right: Algorithm 1 fixes it,"
        f" and decays the head alone (λ {outcome.weight_decay:g} for both); each method has its"
        " own grid, dots are seeds.",
        (norm_panel, accuracy),
    )
    rows = tuple(
        (
            NAMES[method],
            f"{found:g}",
            mean_of(_scores(by_method[method], found)).spread(),
            str(len(_scores(by_method[method], found))),
        )
        for method, found in best.items()
    )
    difference = paired(
        _scores(by_method["algorithm1"], best["algorithm1"]),
        _scores(by_method["weight-decay"], best["weight-decay"]),
    )
    table = TextTable(
        f"{outcome.setting}: the best learning rate of each",
        ("method", "best lr", "accuracy", "seeds"),
        rows,
        (f"Algorithm 1 − weight decay, paired by seed: {difference.interval()} (95 %)",),
        words=1,
    )
    claims = [_norm_claim(lr, decay, runs) for decay, runs in norms.items()]
    return Shown((drawing,), (table,), (*claims, _accuracy_claim(difference)))


def _norm_claim(lr: float, decay: float, norms: Sequence[NormRun]) -> Claim:
    early, late = [], []
    for point in norms:
        curve = point.curve.conv_norm
        turn = max(round(_EARLY * len(curve)), 1)
        early.append(100 * (curve[turn - 1] / curve[0] - 1))
        late.append(100 * (curve[-1] / curve[turn - 1] - 1))
    first, rest = mean_of(early), mean_of(late)
    falls_first = first.mean < 0 and abs(rest.mean) < abs(first.mean)
    return Claim(
        f"Under weight decay ‖W^Conv‖ falls fast at first, then changes slowly (λ {decay:g})",
        "holds" if falls_first else "does not hold",
        f"{first.mean:+.1f} % from the end of the first epoch to that of the first fifth of the"
        f" training, {rest.mean:+.1f} % after; the norm settles in about 1/(4·lr·λ) ="
        f" {1 / (4 * lr * decay):.0f} steps, the training has {norms[0].steps}".replace("-", "−"),
    )


def _accuracy_claim(difference: Mean) -> Claim:
    return Claim(
        "Algorithm 1 is as accurate as weight decay, each at its best lr",
        at_least(difference),
        f"{difference.interval()} %",
    )


def _norm_line(points: Sequence[NormRun], name: str, colour: str) -> Line:
    return Line(name, colour, points[0].curve.epoch, [p.curve.conv_norm for p in points])


def _accuracy_line(points: Sequence[Point], name: str, colour: str) -> Line:
    lrs = sorted({p.lr for p in points})
    seeds = sorted({p.seed for p in points})
    score = {(p.lr, p.seed): p.score for p in points}
    return Line(name, colour, lrs, [[score[lr, s] for lr in lrs] for s in seeds], dots=True)


def _best(points: Sequence[Point]) -> float:
    means = {lr: _mean(points, lr) for lr in sorted({p.lr for p in points})}
    return float(max(means, key=lambda lr: means[lr]))


def _mean(points: Sequence[Point], lr: float) -> float:
    scores = _scores(points, lr)
    whole = len(scores) == sum(p.lr == lr for p in points)
    return float(mean_of(scores).mean) if whole else -1.0


def _scores(points: Sequence[Point], lr: float) -> list[float]:
    found = [p for p in sorted(points, key=lambda p: p.seed) if p.lr == lr]
    return [p.score for p in found if p.score is not None]
