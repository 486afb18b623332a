"""A new experiment is a class, and a line that makes it known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, Self

import pytest

from fixnorm.evidence.experiment import Claim, DrawnExperiment, Exhibit
from fixnorm.evidence.experiments import DRAWN, EXPERIMENTS, names_of
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import SEEDS_AS_DOTS, Row, dots
from fixnorm.evidence.record import exhibit_of, read_record, record_of, write_exhibit
from fixnorm.evidence.reproducing import plan
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.trainings import IMAGINED, Trainings
from fixnorm.report.drawing import Drawing
from fixnorm.training.bounded import Percent
from helpers.tiny import TINY


class Seeds(DrawnExperiment):
    title: ClassVar = "How much seeds differ"

    scores: tuple[Percent, ...]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        seeds = range(scale.seeds)
        found = trainings.sound([scale.fig2.training("fixnorm", seed=seed) for seed in seeds])
        return cls(scores=tuple(one.counted for one in found))

    def show(self) -> Exhibit:
        panel = dots("Seeds", [Row("FixNorm", self.scores, "#0072b2")], x="accuracy (%)")
        claim = Claim("Seeds differ", "does not hold", f"{self.scores}")
        return Exhibit((Drawing("seeds", "Seeds", SEEDS_AS_DOTS, (panel,)),), (), (claim,))

    def repeats(self) -> dict[str, list[Group]]:
        return {"digits": [self.scores]}


def test_an_experiment_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "seeds", Seeds)
    monkeypatch.setitem(DRAWN, "seeds", Seeds)  # as the list of those with drawings does at import

    assert names_of(["seeds"]) == ["seeds"]
    assert len(plan("seeds", TINY)) == TINY.seeds == 2
    trainings = Trainings(lambda _: IMAGINED)
    outcome = trainings.attempt(EXPERIMENTS["seeds"].at(TINY))
    assert outcome is not None
    write_exhibit(record_of("seeds", "small", outcome, trainings.used), tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "seeds.html",
        "seeds.json",
        "seeds.md",
        "seeds.png",
    ]
    assert "Seeds differ. (0.0, 0.0)." in (tmp_path / "seeds.html").read_text()
    stored = json.loads((tmp_path / "seeds.json").read_text())
    assert stored["outcome"] == {"scores": [0.0, 0.0]}
    (claim,) = exhibit_of(read_record(tmp_path / "seeds.json")).claims
    assert claim.verdict == "does not hold"


def test_an_outcome_that_breaks_a_rule_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"^in outcome, scores\[1\]: input should be less .* 101$"):
        Seeds.of({"scores": [1, 101]})
    far = Trainings(lambda training: type(IMAGINED)(**{**vars(IMAGINED), "score": 101.0}))
    with pytest.raises(ValueError, match=r"^in outcome, scores\[0\]: .* but it is 101\.0$"):
        far.attempt(Seeds.at(TINY))
