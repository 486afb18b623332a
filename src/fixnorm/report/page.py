"""The page: the answer first, then what it rests on. It needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fixnorm.report.document import document, figure_card
from fixnorm.report.drawing import Drawing
from fixnorm.report.markup import T_MAX, Markup, join, tag, with_t_max
from fixnorm.report.notes import notes
from fixnorm.report.progress import answer, cost_to_reach, stage
from fixnorm.report.slots import SlotRecord
from fixnorm.report.space import announced
from fixnorm.report.tables import (
    counted,
    settings_table,
    slot_table,
    studies_table,
    trial_table,
)
from fixnorm.report.words import choice, length, metric_name, slug, title_of, valued, weight_decay
from fixnorm.tuning.record import StudyRecord

__all__ = ["StudyPart", "anchors_of", "page"]


@dataclass(frozen=True)
class StudyPart:
    """A study with its drawings."""

    study: StudyRecord
    anchor: str
    """Its ``id`` in the page."""
    figures: tuple[Drawing, ...]
    curves: tuple[Drawing, ...]


def page(
    parts: Sequence[StudyPart], comparison: Drawing | None, *, out: Path, command: str | None
) -> str:
    """The whole page; ``out`` is the folder it will lie in."""
    if len(parts) == 1:
        study = parts[0].study
        title = f"{study.name}: {title_of(study)}"
        body = join(
            tag("h1", study.name),
            tag("p", f"Search report: {title_of(study)}", class_="sub"),
            *_study(parts[0], out=out, command=command),
        )
    else:
        title = f"{len(parts)} searches compared"
        body = join(
            tag("h1", title),
            _compare(parts, comparison),
            _command(command),
            *(
                tag(
                    "section",
                    tag("h2", part.study.name),
                    tag("p", title_of(part.study), class_="sub"),
                    *_study(part, out=out, command=None),
                    id=part.anchor,
                    class_="study",
                )
                for part in parts
            ),
        )
    return document(title, body, script="sort.js")


def anchors_of(studies: Sequence[StudyRecord]) -> list[str]:
    """A short name for each study, for ids and file names; no two are equal."""
    return [
        f"study-{place}-{slug(study.name)}".rstrip("-")
        for place, study in enumerate(studies, start=1)
    ]


# -- one study -------------------------------------------------------------------------------------


def _study(part: StudyPart, *, out: Path, command: str | None) -> Iterator[Markup | None]:
    study = part.study
    best = answer(study)
    yield tag("p", _sentence(study, best), class_="answer")
    yield _tiles(study, best)
    remarks = [tag("li", with_t_max(note.text), class_=note.kind) for note in notes(study)]
    if remarks:
        yield tag("ul", *remarks, class_="notes")
    yield _command(command)
    if part.figures:
        yield tag("h3", "What was tried")
        cards = [figure_card(drawing, part.anchor) for drawing in part.figures]
        yield tag("div", *cards, class_="figures")
    if part.curves:
        yield tag("h3", "Curves of every training")
        for drawing in part.curves:
            yield tag(
                "details",
                tag("summary", drawing.title),
                figure_card(drawing, part.anchor, class_="curves"),
            )
    by_slot = slot_table(study)
    if by_slot is not None:
        yield tag("h3", "Slots: mean and spread over the seeds")
        yield by_slot
    if study.trials:
        yield tag("h3", f"All trials ({len(study.trials)})")
        yield trial_table(study, out)
    if study.settings:
        yield tag(
            "details", tag("summary", "Settings of the search"), settings_table(study.settings)
        )


def _sentence(study: StudyRecord, best: SlotRecord | None) -> Markup:
    state = stage(study)
    going = {
        "empty": "",
        "running": " The search is still running.",
        "unfinished": " The search is not finished: the same command goes on with it.",
        "over": "",
    }[state]
    if state == "empty":
        return join("Nothing has been trained yet: this search has no trials.")
    if best is None or best.mean is None:
        ended = any(trial.state != "running" for trial in study.trials)
        why = "No training has ended with a number" if ended else "No training has ended yet"
        return join(f"{why}: there is no answer.{going}")
    value = valued(best.mean, study.metric)
    spread = ""
    if best.std is not None:
        spread = (
            f" (mean of {len(best.values)} seeds, standard deviation"
            f" {valued(best.std, study.metric)})"
        )
    start = "The best is" if state == "over" else "The best so far is"
    return join(
        f"{start} ",
        tag("strong", choice(best)),
        f", with {metric_name(study.metric)} ",
        tag("strong", value),
        f"{spread}.{going}",
    )


def _tiles(study: StudyRecord, best: SlotRecord | None) -> Markup:
    plan, tiles = announced(study), []
    if best is not None and best.mean is not None:
        trial = best.first
        tiles.append(_tile("lr", f"{trial.lr:.3g}"))
        if trial.alpha is not None:
            tiles.append(_tile("alpha", f"{trial.alpha:g}"))
        if trial.weight_decay is not None:
            tiles.append(_tile("weight decay", weight_decay(trial.weight_decay)))
        spread = None if best.std is None else f"± {valued(best.std, study.metric)}"
        tiles.append(
            _tile(metric_name(study.metric), valued(best.mean, study.metric), small=spread)
        )
    bound = None if plan.cost is None else join(f"of at most {length(plan.cost)} ", T_MAX)
    tiles.append(_tile("cost spent", join(f"{length(study.cost)} ", T_MAX), small=bound))
    trained = sum(trial.state not in ("free", "running") for trial in study.trials)
    most = None if plan.trainings is None else join(f"of at most {plan.trainings}", tag("br"))
    tiles.append(_tile("trainings", str(trained), small=join(most, counted(study))))
    return tag("div", *tiles, class_="tiles")


def _tile(label: str, value: str, small: str | None = None) -> Markup:
    return tag(
        "div",
        tag("div", label, class_="label"),
        tag("div", value, class_="big"),
        tag("div", small, class_="small") if small else None,
        class_="tile",
    )


def _command(command: str | None) -> Markup | None:
    if command is None:
        return None
    return join(tag("h3", "Train with the answer"), tag("pre", command, class_="command"))


# -- several studies -------------------------------------------------------------------------------


def _compare(parts: Sequence[StudyPart], comparison: Drawing | None) -> Markup:
    studies = [part.study for part in parts]
    table = studies_table(studies, [part.anchor for part in parts])
    figure = None if comparison is None else figure_card(comparison, "compare")
    return tag(
        "section",
        tag("p", _comparison_sentence(studies), class_="answer"),
        table,
        tag("h3", "Search progress") if figure is not None else None,
        figure,
        id="comparison",
        class_="compare",
    )


def _comparison_sentence(studies: Sequence[StudyRecord]) -> Markup:
    found = [(study, answer(study)) for study in studies]
    known = [
        (study, best.mean) for study, best in found if best is not None and best.mean is not None
    ]
    if not known:
        return join("None of the searches has a number yet.")
    if len({study.metric for study in studies}) > 1:
        return join("The searches have different metrics: their values cannot be compared.")
    study, mean = max(known, key=lambda item: item[1])
    reached = cost_to_reach(study)
    spent = "" if reached is None else f", reached after {length(reached)} T_max"
    return join(
        "The best of all is ",
        tag("strong", study.name),
        f" ({title_of(study)}) with {metric_name(study.metric)} ",
        tag("strong", valued(mean, study.metric)),
        with_t_max(f"{spent}."),
    )
