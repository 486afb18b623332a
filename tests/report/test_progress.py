"""Best so far against cost, and how sure the winner is: numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fixnorm.report.notes import notes
from fixnorm.report.summary import (
    announced,
    answer,
    cost_to_reach,
    judge,
    longest,
    progress,
    slots_of,
    stage,
    ties,
)
from fixnorm.tuning.trial import StudyRecord, Trial
from helpers.records import SPACE, START, study, trial


def short(index: int, accuracy: float | None, **given: Any) -> Trial:
    fields = {"round": "lr round 1", "fraction": 0.2, "index": index, "accuracy": accuracy}
    return trial(f"lr1-{index}-seed{given.get('seed', 0)}", **{**fields, **given})


def full(index: int, accuracy: float | None, **given: Any) -> Trial:
    fields = {"round": "lr round 2", "index": index, "accuracy": accuracy, "lr": 0.2 + index}
    return trial(f"lr2-{index}-seed{given.get('seed', 0)}", **{**fields, **given})


def walked(record: StudyRecord) -> list[tuple[float, float | None]]:
    return [(step.cost, step.best.mean if step.best else None) for step in progress(record)]


def test_short_trainings_cost_but_are_no_candidates() -> None:
    record = study(short(0, 90.0), short(1, 95.0), full(0, 40.0), full(1, 45.0), full(2, 44.0))
    # Two short ones cost 0.4 together; 90 and 95 are not in the line.
    assert walked(record) == [(1.4, 40.0), (2.4, 45.0), (3.4, 45.0)]
    assert cost_to_reach(record) == 2.4


def test_free_trials_cost_nothing() -> None:
    free = full(1, 50.0, state="free", source="lr2-0-seed0")
    assert walked(study(full(0, 50.0), free)) == [(1.0, 50.0), (1.0, 50.0)]


def test_the_order_is_that_of_ending_not_of_beginning() -> None:
    record = study(full(0, 50.0, ended=START + 9), full(1, 40.0, ended=START + 5))
    assert walked(record) == [(1.0, 40.0), (2.0, 50.0)]


def test_a_slot_of_several_seeds_counts_when_the_last_has_ended() -> None:
    record = study(
        full(0, 70.0, seed=0),
        full(1, 60.0, seed=0),
        full(1, 64.0, seed=1),  # the second slot ends first, after three trainings: mean 62
        full(0, 72.0, seed=1),  # mean 71
        settings={"seeds": 2},
    )
    assert walked(record) == [(3.0, 62.0), (4.0, 71.0)]
    first = slots_of(record)[0]
    assert first.values == (70.0, 72.0)
    assert first.std == pytest.approx(math.sqrt(2))


def test_a_slot_with_seeds_to_come_has_no_mean() -> None:
    record = study(full(0, 70.0, seed=0), settings={"seeds": 2})
    assert progress(record) == ()
    assert slots_of(record)[0].state == "running"
    assert answer(record) is None


def test_diverged_and_failed_trials_cost_and_close_their_slots() -> None:
    record = study(
        full(0, None, state="failed", reason="killed"),
        full(1, None, state="diverged"),
        full(2, 50.0),
    )
    assert walked(record) == [(1.0, None), (2.0, None), (3.0, 50.0)]
    assert [slot.state for slot in slots_of(record)] == ["failed", "diverged", "trained"]


def test_one_failed_seed_fails_the_slot() -> None:
    record = study(full(0, 99.0), full(0, None, seed=1, state="failed"), full(1, 50.0),
                   full(1, 52.0, seed=1))  # fmt: skip
    assert walked(record) == [(2.0, None), (4.0, 51.0)]


def test_a_running_trial_costs_nothing_yet_and_is_no_candidate() -> None:
    record = study(full(0, 50.0), full(1, None, state="running"))
    assert walked(record) == [(1.0, 50.0)]
    assert stage(record) == "running"


def test_while_only_short_trainings_are_there_the_settings_know_full_length() -> None:
    record = study(short(0, 50.0), settings={"space": SPACE})
    assert longest(record) == 1.0
    assert progress(record) == ()
    assert stage(record) == "unfinished"
    assert longest(study(short(0, 50.0))) == 0.2  # nothing said: the longest that is there


def test_the_answer_is_the_first_of_equals() -> None:
    source = trial("alpha-5-seed0", round="alpha round", index=5, alpha=16.0, accuracy=50.0)
    free = trial("alpha-2-seed0", round="alpha round", index=2, alpha=2.0, accuracy=50.0,
                 state="free", source="alpha-5-seed0")  # fmt: skip
    best = answer(study(full(0, 40.0), source, free))
    assert best is not None
    assert best.first.alpha == 2.0  # trained later than 16, before it in the list


def test_nothing_at_all() -> None:
    record = study()
    assert (progress(record), answer(record), judge(record)) == ((), None, None)
    assert cost_to_reach(record) is None
    assert stage(record) == "empty"


@pytest.mark.parametrize(("count", "expected"), [(14, "unfinished"), (15, "over")])
def test_the_papers_plan_is_over_after_fifteen_trials(count: int, expected: str) -> None:
    trials = [full(k, 50.0) for k in range(count)]
    assert stage(study(*trials, settings={"space": SPACE})) == expected


def test_the_unimodal_plan_is_over_when_the_alpha_round_is() -> None:
    settings = {"space": SPACE}
    record = study(full(0, 50.0), strategy="unimodal", settings=settings)
    assert stage(record) == "unfinished"
    alpha = trial("alpha-5-seed0", round="alpha round", index=5, alpha=16.0, accuracy=50.0)
    record = study(full(0, 50.0), alpha, strategy="unimodal", settings=settings)
    assert stage(record) == "over"


def test_announced_cost() -> None:
    assert announced(study(settings={"space": SPACE})).cost == 11
    assert announced(study(settings={"space": {**SPACE, "seeds": 3}})).cost == 33
    assert announced(study(settings=SPACE)).trainings == 15
    baseline = study(method="bo-weight-decay", settings={"budget": 25})
    assert announced(baseline).cost == 25
    assert announced(study(settings={"space": {**SPACE, "splits": "five"}})).cost is None


# -- the winner against the runner-up ----------------------------------------------------------


def seeded(*slots: tuple[float, ...], **given: Any) -> StudyRecord:
    trials = [full(k, v, seed=s) for k, slot in enumerate(slots) for s, v in enumerate(slot)]
    return study(*trials, **given)


def test_within_the_spread() -> None:
    # Means 71 and 70.5; variances 2 and 0.5 over two seeds: the error is √(2/2 + 0.5/2) = √1.25.
    record = seeded((70, 72), (70, 71), (10, 12))
    judgement = judge(record)
    assert judgement is not None
    assert judgement.difference == pytest.approx(0.5)
    assert judgement.error == pytest.approx(math.sqrt(1.25))
    assert judgement.within is True
    said = [note for note in notes(record) if "within the spread" in note.text]
    assert [note.kind for note in said] == ["warning"]
    assert "0.50\N{NO-BREAK SPACE}% ahead" in said[0].text
    assert "(1.12\N{NO-BREAK SPACE}%)" in said[0].text


def test_beyond_the_spread() -> None:
    record = seeded((75, 77), (70, 71))
    judgement = judge(record)
    assert judgement is not None
    assert judgement.within is False
    assert not any("within the spread" in note.text for note in notes(record))


def test_with_one_seed_the_spread_is_not_known() -> None:
    record = seeded((75,), (70,))
    judgement = judge(record)
    assert judgement is not None
    assert judgement.within is None
    assert any("With one seed" in note.text for note in notes(record))


def test_short_trainings_are_no_runners_up() -> None:
    judgement = judge(study(short(0, 69.0), full(0, 70.0), full(1, 60.0)))
    assert judgement is not None
    assert judgement.difference == 10.0


def test_a_free_slot_is_the_winner_itself_not_its_runner_up() -> None:
    free = full(1, 70.0, state="free", source="lr2-0-seed0")
    again = full(2, 70.0, state="free", source="lr2-1-seed0")  # free by one that is free
    judgement = judge(study(full(0, 70.0), free, again, full(3, 65.0)))
    assert judgement is not None
    assert judgement.difference == 5.0
    assert judge(study(full(0, 70.0), free, again)) is None


@pytest.mark.parametrize(("images", "tie"), [(400, True), (40_000, False), (None, False)])
def test_what_the_validation_images_cannot_tell_is_a_tie(images: int | None, tie: bool) -> None:
    # 1.96 · √(0.7 · 0.3 / 400) is 4.49 %, of 40,000 images 0.449 %.
    best = full(0, 70.0, lr=3.2, images=images)
    near, far = full(1, 67.0, lr=2.0, images=images), full(2, 60.0, lr=0.8, images=images)
    same = full(3, 67.0, lr=2.0, images=images, state="free", source="lr2-1-seed0")
    record = study(best, near, far, same, settings={"space": SPACE})
    assert [slot.first.key for slot in ties(record)] == (
        ["lr2-1-seed0", "lr2-3-seed0"] if tie else []
    )
    said = texts(record, "info")
    told = "A tie: lr 2, alpha 0.5 is as good as the winner as far as 400 validation images can"
    assert (told in said, "With one seed" in said) == (tie, not tie)
    assert ("highest of its range" in texts(record)) is not tie


def test_a_tie_over_alpha_is_no_edge() -> None:
    ends = [
        trial(f"alpha-{k}", round="alpha round", index=k, alpha=alpha, accuracy=90.0 - k,
              largest_scale=9.0, images=1000)
        for k, alpha in enumerate((0.5, 1.0))
    ]  # fmt: skip
    assert "its list" not in texts(study(*ends, settings={"space": SPACE}))
    alone = study(ends[0], trial("other", index=2, alpha=4.0, accuracy=60.0, images=1000),
                  settings={"space": SPACE})  # fmt: skip
    assert "smallest of its list" in texts(alone)


# -- warnings ----------------------------------------------------------------------------------


def texts(record: StudyRecord, kind: str = "warning") -> str:
    return "\n".join(note.text for note in notes(record) if note.kind == kind)


@pytest.mark.parametrize(
    ("lr", "expected"),
    [(3.2, "highest of its range, lr 3.2"), (0.2, "lowest of its range, lr 0.2"), (1.4, "")],
)
def test_edge_of_the_lr_range(lr: float, expected: str) -> None:
    record = study(full(0, 70.0, lr=lr), full(1, 60.0, lr=0.8), settings={"space": SPACE})
    said = texts(record)
    assert expected in said if expected else "range" not in said


@pytest.mark.parametrize(
    ("lr", "decay", "expected"),
    [
        # The range of lr spans a factor of 16; five per cent of it is a factor of 1.149.
        (3.2 / 1.14, 1e-4, "highest of its range, lr 3.2"),
        (3.2 / 1.16, 1e-4, ""),
        (1.0, 4.9e-4, "highest of its range, weight decay 0.0005"),
    ],
)
def test_a_sampled_point_near_the_end_is_at_the_edge(
    lr: float, decay: float, expected: str
) -> None:
    ends = {"lr_min": 0.2, "lr_max": 3.2, "weight_decay_min": 1e-5, "weight_decay_max": 5e-4}
    best = trial("point-000", round="points", lr=lr, alpha=None, weight_decay=decay, accuracy=9.0)
    said = texts(study(best, method="bo-weight-decay", strategy="gp", settings=ends))
    assert expected in said if expected else said == ""


@pytest.mark.parametrize(
    ("alpha", "scale", "expected"),
    [
        (0.5, 0.6, "smallest of its list, 0.5"),
        (16.0, 16.2, "largest of its list, 16"),
        (16.0, 3.0, ""),  # g never met the cap: any larger alpha is the same training
        (2.0, 2.1, ""),
    ],
)
def test_edge_of_the_alphas(alpha: float, scale: float, expected: str) -> None:
    best = trial("best", round="alpha round", index=1, alpha=alpha, accuracy=70.0,
                 largest_scale=scale)  # fmt: skip
    other = trial("other", round="alpha round", index=2, alpha=4.0, accuracy=60.0)
    said = texts(study(best, other, settings={"space": SPACE}))
    assert expected in said if expected else "its list" not in said


def test_a_cap_that_was_never_met_is_no_edge() -> None:
    best = trial("best", round="alpha round", index=1, alpha=0.5, accuracy=70.0,
                 largest_scale=0.24)  # fmt: skip
    other = trial("other", round="alpha round", index=2, alpha=4.0, accuracy=60.0)
    record = study(best, other, settings={"space": SPACE})
    assert "its list" not in texts(record)
    assert "never met, g reached 0.24·√C: every alpha from there on" in texts(record, "info")


def test_before_the_alpha_round_nothing_is_said_about_its_edge() -> None:
    assert "its list" not in texts(study(full(0, 70.0), settings={"space": SPACE}))


def test_the_upper_end_of_the_last_round_is_mentioned() -> None:
    record = study(
        short(0, 50.0, lr=2.6), full(0, 70.0, lr=2.6), full(1, 60.0, lr=0.2),
        settings={"space": SPACE},
    )  # fmt: skip
    assert "lr 2.6 is the highest that the full-length round tried" in texts(record, "info")


def test_failures_are_told_with_their_reasons_and_many_in_short() -> None:
    failed = [full(k, None, state="failed", reason=f"reason {k}.") for k in range(8)]
    said = texts(study(*failed, full(9, 50.0)))
    assert "lr2-0-seed0 (lr 0.2, alpha 0.5) failed: reason 0." in said
    assert "reason 4" in said
    assert "reason 5" not in said
    assert "3 more failed" in said


def test_a_short_winner_is_said_to_be_short() -> None:
    assert "a short training, of 0.2 T_max" in texts(study(short(0, 80.0), full(0, 70.0)), "info")
