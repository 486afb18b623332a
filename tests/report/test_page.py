"""The page: what it says, that it needs nothing else, and that no name can break it."""

from __future__ import annotations

import dataclasses
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fixnorm.report import write_report
from fixnorm.tuning.trial import StudyRecord
from helpers.records import SPACE, baseline_study, paper_study, study, trial

VOID = {"meta", "link", "br", "img", "input", "hr"}
NASTY = "<b>\"'&amp;</script><script>alert(1)</script>"


class Reader(HTMLParser):
    """Elements, their attributes and all text; refuses what is not nested well."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.rows: list[tuple[dict[str, str], list[str]]] = []
        self.notes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append((attributes, []))
        elif tag in ("td", "th"):
            self.rows[-1][1].append("")
        elif tag == "li":
            self.notes.append((attributes.get("class", ""), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "script" in self.open:
            return
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][1][-1] += data
        if "li" in self.open:
            kind, text = self.notes[-1]
            self.notes[-1] = (kind, text + data)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, first: str) -> list[str]:
        return next(cells for _, cells in self.rows if cells and cells[0] == first)


def read(studies: list[StudyRecord], out: Path, **given: Any) -> Reader:
    path = write_report(studies, out, **given)
    assert path == out / "report.html"
    return Reader(path.read_text(encoding="utf-8"))


def figures(page: Reader) -> set[str]:
    return {attributes["id"] for attributes in page.of("figure")}


COMMAND = "fixnorm train cifar10-small --set lr=1.4 --set alpha=2 && echo '<done>'"


@dataclasses.dataclass(frozen=True)
class Written:
    record: StudyRecord
    out: Path
    page: Reader


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A finished search with a diverged and a failed training, and its page."""
    folder = tmp_path_factory.mktemp("paper")
    record = paper_study(folder / "runs with space")
    return Written(record, folder / "out", read([record], folder / "out", command=COMMAND))


# -- what it says ------------------------------------------------------------------------------


def test_the_answer_cost_counts_and_command(paper: Written) -> None:
    record, page = paper.record, paper.page
    best = next(t for t in record.trials if t.key == "alpha-2-seed0")
    assert f"The best is lr 1.4, alpha 2, with accuracy {best.accuracy:.2f}\xa0%." in page.text
    assert "8 Tmax" in page.text  # 5 × 0.2 + 5 + 2 trained alphas
    assert "of at most 11 Tmax" in page.text
    assert "10 trained, 3 free, 1 diverged, 1 failed" in page.text
    assert COMMAND in page.text
    assert figures(page) == {
        f"study-1-cifar10-small-{name}"
        for name in (
            "learning-rate",
            "alpha",
            "progress",
            "curves-lr-round-1",
            "curves-lr-round-2",
            "curves-alpha-round",
        )
    }
    assert len(page.of("svg")) == 2 + 1 + 1 + 3 * 5
    assert sorted(path.name for path in (paper.out / "figures").iterdir()) == [
        "alpha.png",
        "curves-alpha-round.png",
        "curves-lr-round-1.png",
        "curves-lr-round-2.png",
        "learning-rate.png",
        "progress.png",
    ]


def test_without_a_command_none_is_shown(tmp_path: Path) -> None:
    page = read([study(trial("a", accuracy=1.0))], tmp_path)
    assert "Train with the answer" not in page.text
    assert page.of("pre") == []


def test_the_table_has_every_trial_with_its_state_and_links(paper: Written) -> None:
    record, page = paper.record, paper.page
    heads = page.rows[0][1]
    for t in record.trials:
        row = dict(zip(heads, page.row(t.key), strict=True))
        assert row["state"].startswith(t.state)
        assert row["accuracy (%)"] == ("" if t.accuracy is None else f"{t.accuracy:.2f}")
        assert row["lr"] == f"{t.lr:g}"
        assert row["length"] == f"{t.fraction:g}"
        assert row["files"].split() == ([] if t.state == "free" else ["metrics", "result"])
    assert (
        "same as alpha-5-seed0" in dict(zip(heads, page.row("alpha-2-seed0"), strict=True))["state"]
    )
    assert "killed by signal 9" in dict(zip(heads, page.row("lr2-1-seed0"), strict=True))["state"]
    best = [cells[0] for attributes, cells in page.rows if attributes.get("class") == "best"]
    assert best == ["alpha-2-seed0"]

    links = [a["href"] for a in page.of("a")]
    assert len(links) == 2 * 12
    for link in links:
        assert (paper.out / urllib.parse.unquote(link)).is_file()
        assert not link.startswith("/")


def test_warnings_stand_before_remarks(paper: Written) -> None:
    page = paper.page
    kinds = [kind for kind, _ in page.notes]
    assert kinds == sorted(kinds, reverse=True)
    assert page.notes[0] == (
        "warning",
        "lr2-1-seed0 (lr 0.8, alpha 0.5) failed: the process was killed by signal 9.",
    )
    assert any("Diverged" in text and "lr1-4-seed0" in text for _, text in page.notes)


def test_the_edge_of_a_range_is_a_warning(tmp_path: Path) -> None:
    record = study(trial("a", lr=3.2, accuracy=50.0), settings={"space": SPACE})
    page = read([record], tmp_path)
    assert any(kind == "warning" and "highest of its range" in text for kind, text in page.notes)


@pytest.mark.slow
def test_seeds_are_shown_with_their_spread(tmp_path: Path) -> None:
    record = paper_study(tmp_path / "runs", seeds=3, lost=False)
    page = read([record], tmp_path)
    values = [t.accuracy for t in record.trials if t.round == "alpha round" and t.alpha == 2.0]
    assert all(value is not None for value in values)
    mean = sum(value for value in values if value is not None) / 3
    assert f"accuracy {mean:.2f}\xa0% (mean of 3 seeds, standard deviation" in page.text
    row = next(cells for _, cells in page.rows if cells[1:2] == ["lr 1.4, alpha 2"])
    assert row[3] == "3 of 3"
    assert row[4] == f"{mean:.2f}"
    assert any("standard error of that difference" in text for _, text in page.notes)


def test_settings_are_shown(tmp_path: Path) -> None:
    record = study(settings={"recipe": "digits", "space": SPACE})
    page = read([record], tmp_path)
    assert page.row("recipe") == ["recipe", "digits"]
    assert page.row("space.alphas") == ["space.alphas", "0.5 1.0 2.0 4.0 8.0 16.0"]


# -- searches that are not over ----------------------------------------------------------------


def test_no_trials(tmp_path: Path) -> None:
    page = read([study(settings={"space": SPACE})], tmp_path)
    assert "Nothing has been trained yet" in page.text
    assert "of at most 11" in page.text
    assert figures(page) == set()


def test_nothing_finished(tmp_path: Path) -> None:
    page = read([study(trial("a", state="running"))], tmp_path)
    assert (
        "No training has ended yet: there is no answer. The search is still running." in page.text
    )


def test_nothing_but_failures(tmp_path: Path) -> None:
    page = read([study(trial("a", state="failed", reason="no disk"))], tmp_path)
    assert "No training has ended with a number: there is no answer." in page.text
    assert any("no disk" in text for _, text in page.notes)


@pytest.mark.slow
def test_a_running_search_with_a_half_written_file(tmp_path: Path) -> None:
    record = paper_study(tmp_path / "runs", lost=False)
    trials = list(record.trials[:7])
    last, missing = trials[5], trials[6]
    assert last.folder is not None
    assert missing.folder is not None
    metrics = last.folder / "metrics.csv"
    metrics.write_text(metrics.read_text()[:400])
    for path in missing.folder.iterdir():
        path.unlink()
    for place in (5, 6):
        trials[place] = dataclasses.replace(trials[place], result=None)
    page = read([dataclasses.replace(record, trials=tuple(trials))], tmp_path)
    assert "The best so far is lr" in page.text
    assert "The search is still running." in page.text
    assert "5 trained, 2 running" in page.text
    assert "study-1-cifar10-small-curves-lr-round-2" in figures(page)
    assert "study-1-cifar10-small-progress" not in figures(page)  # no full-length training yet


def test_a_slot_none_of_whose_seeds_has_ended(tmp_path: Path) -> None:
    trials = [trial(f"a{k}", seed=k, accuracy=50.0 + k) for k in range(2)]
    trials += [trial(f"b{k}", seed=k, index=1, lr=2.0, state="running") for k in range(2)]
    page = read([study(*trials)], tmp_path)
    row = next(cells for _, cells in page.rows if cells[1:2] == ["lr 2, alpha 0.5"])
    assert row[3:] == ["0 of 2", "", "", "", "running"]


def test_a_stopped_search_says_how_it_goes_on(tmp_path: Path) -> None:
    record = study(trial("a", accuracy=50.0), settings={"space": SPACE})
    page = read([record], tmp_path)
    assert "not finished: the same command goes on with it" in page.text


def test_no_studies(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one study"):
        write_report([], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def assert_needs_nothing(page: Reader, source: str) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "data", "action", "srcset"):
            if name in attributes:
                value = attributes[name]
                local = tag == "a" and "://" not in value and not value.startswith("//")
                assert local or value.startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in source
    assert "url(http" not in source
    assert "fetch(" not in source
    styles = source[source.index("<style") : source.index("</style>")]
    assert "url(" not in styles


# -- several studies ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_comparison_comes_first_and_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    ours, baseline = paper_study(tmp_path / "a"), baseline_study(tmp_path / "b")
    page = read([ours, baseline], tmp_path)
    assert_needs_nothing(page, (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.of("section")[0]["id"] == "comparison"
    assert "compare-comparison" in figures(page)
    assert "study-2-cifar10-small-bo-points" in figures(page)
    assert (tmp_path / "figures" / "comparison.png").is_file()
    assert (tmp_path / "figures" / "study-2-cifar10-small-bo-points.png").is_file()
    first = page.row("cifar10-small")
    assert first[1] == "FixNorm, paper's plan"
    assert first[3] == "lr 1.4, alpha 2"
    assert first[4:6] == ["7", "8"]  # alpha 16, trained first of its round, is the winner's run
    anchors = {attributes.get("id") for _, attributes in page.elements}
    for link in page.of("a"):
        if link["href"].startswith("#"):
            assert link["href"][1:] in anchors


def test_studies_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    one = study(trial("a", accuracy=50.0), name="same")
    page = read([one, one, dataclasses.replace(one, metric="loss")], tmp_path)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "different metrics" in page.text


# -- nothing breaks it -------------------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True])
def test_names_are_escaped(tmp_path: Path, several: bool) -> None:
    record = study(
        trial(NASTY, round=f"lr round {NASTY}", accuracy=50.0, folder=tmp_path / "<i>"),
        trial("b", state="failed", reason=NASTY, index=1),
        trial("c", state="free", accuracy=1.0, source=NASTY, index=2),
        name=NASTY,
        method=NASTY,
        strategy=NASTY,
        metric=NASTY,
        settings={NASTY: NASTY, "inner": {NASTY: [NASTY]}},
    )
    (tmp_path / "<i>").mkdir()
    (tmp_path / "<i>" / "metrics.csv").write_text("epoch,train_loss\n1,2\n2,1\n")
    page = read([record] * (2 if several else 1), tmp_path, command=NASTY)
    assert page.of("b") == []
    assert page.of("i") == []
    assert len(page.of("script")) == 1
    assert page.text.count(NASTY) >= 8


def test_characters_that_no_page_may_hold(tmp_path: Path) -> None:
    record = study(
        trial("a", accuracy=50.0), name="bell\x07 \ud800 null\x00", settings={"\x01": "\x02"}
    )
    page = read([record], tmp_path)
    assert "bell" in page.text
    assert not any(ord(c) < 32 and c not in "\n\t" for c in page.text)


@pytest.mark.slow
def test_the_page_is_the_same_when_written_again(paper: Written) -> None:
    first = (paper.out / "report.html").read_bytes()
    again = write_report([paper.record], paper.out, command=COMMAND)
    assert again.read_bytes() == first
    assert [p for p in paper.out.rglob("*") if p.name.endswith(".part")] == []


@pytest.mark.slow
def test_a_large_search_stays_small(tmp_path: Path) -> None:
    record = baseline_study(tmp_path / "runs", points=120, epochs=100)
    path = write_report([record], tmp_path)
    assert path.stat().st_size < 3_000_000
    assert len(Reader(path.read_text(encoding="utf-8")).rows) > 120
