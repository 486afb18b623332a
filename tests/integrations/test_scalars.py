"""The names and numbers that loggers get."""

from __future__ import annotations

from fixnorm.integrations import scalars
from fixnorm.telemetry import Figures, GroupFigures, HeadFigures, MatrixFigures, WeightFigures

GROUP = GroupFigures(
    norm=5.5, target=5.0, factor=5 / 5.5, lr=0.5, effective_lr=0.02, implied_decay=0.2
)


def test_one_group() -> None:
    figures = Figures(
        groups=(GROUP,),
        weights={"conv.weight": WeightFigures(1.0, 0.25), "fc.weight": WeightFigures(0.0, None)},
        heads={"fc": HeadFigures(2.5, 2.0, True), "gate": HeadFigures(0.5, None, False)},
    )
    assert scalars(figures) == {
        "fixnorm/norm": 5.5,
        "fixnorm/target": 5.0,
        "fixnorm/implied_decay": 0.2,
        "fixnorm/effective_lr": 0.02,
        "fixnorm/g/fc": 2.5,
        "fixnorm/cap/fc": 2.0,
        "fixnorm/g/gate": 0.5,
        "fixnorm/angle/conv.weight": 0.25,
    }


def test_several_groups() -> None:
    share = WeightFigures(0.5, None)
    named = Figures((GROUP, GROUP), {"a.weight": share, "b.weight": share}, {})
    assert [n for n in scalars(named, prefix="") if n.startswith("norm")] == [
        "norm/a.weight",
        "norm/b.weight",
    ]
    three = Figures((GROUP, GROUP), {"a": share, "b": share, "c": share}, {})
    assert [n for n in scalars(three, prefix="") if n.startswith("norm")] == ["norm/0", "norm/1"]


def test_scope_matrix() -> None:
    figures = Figures((), {}, {}, matrices={"up.weight": MatrixFigures(3.0, 0.1, 0.02)})
    assert scalars(figures) == {"fixnorm/angle/up.weight": 0.02}


def test_before_the_first_step() -> None:
    assert scalars(Figures((), {}, {})) == {}
