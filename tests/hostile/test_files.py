"""Every file that a command reads, damaged in every way: the promise holds, or nothing is wrong.

A mutation may be harmless, so a command may also come to its end; what it must never do is end in
an exception, hang, write over files of others, or leave something behind when it refuses. The
environment variable ``FIXNORM_FUZZ_MINUTES`` lets each fuzzer run for so long.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

import fixnorm
from fixnorm.data import DataError
from fixnorm.data.coco import read_coco_file
from fixnorm.models.backbones import load_backbone
from fixnorm.report import drawing
from fixnorm.report.curves import read_curves
from fixnorm.system.lock import held
from fixnorm.training.checkpoint import Checkpoints
from helpers.mutations import MINUTES, Damage, damaged_bytes, damaged_json, fuzz
from helpers.promise import LONGEST, Answer, answered, check_line, listing, refused

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "results" / "reproduce").glob("*.json"))
TRAIN = ["train", "digits", "--out", "run", "--no-tensorboard"]
TRAIN += [f"--set={pair}" for pair in ("epochs=1", "warmup_epochs=0", "model=resnet8-s2")]
TRAIN += ["--set=train_per_class=26", "--set=val_per_class=2", "--set=image_size=8"]
TRAIN += ["--set=batch_size=64", "--checkpoint-steps", "1", "--keep", "9"]


def curve(lr: float, alpha: float, steps: int) -> float:
    return 50 + lr - lr * lr / 3 - alpha / 50


def search(out: Path) -> object:
    alphas = (0.5, 1.0)
    return fixnorm.tune(
        curve, steps=1, out=out, progress=False, splits=2, fractions=(1.0,), alphas=alphas
    )


def point(lr: float, alpha: float, fraction: float, seed: int) -> dict[str, Any]:
    score = curve(lr, alpha, 1) + seed
    return {
        "lr": lr,
        "alpha": alpha,
        "fraction": fraction,
        "seed": seed,
        "accuracy": score,
        "curve": [score / 2, score],
        "largest_scale": 3.0,
    }


LANDSCAPE = {
    "name": "small",
    "points": [
        point(lr, alpha, fraction, seed)
        for fraction, alphas in ((0.2, (0.5,)), (1.0, (0.5, 1.0)))
        for alpha in alphas
        for lr in (0.5, 1.0)
        for seed in (0, 1)
    ],
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training with its checkpoints, a search, a recording and records."""
    place = tmp_path_factory.mktemp("originals")
    done = answered(TRAIN, place)
    assert done.code == 0, done
    assert len(list((place / "run" / "checkpoints").iterdir())) > 1
    search(place / "study")
    (place / "landscape.json").write_text(json.dumps(LANDSCAPE))
    for record in RECORDS:
        shutil.copy(record, place)
    return place


@pytest.fixture
def place(originals: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    copied = tmp_path / "place"
    shutil.copytree(originals, copied)
    return copied


@pytest.fixture(autouse=True)
def _drawn_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels draw themselves; only the long run also makes pictures of them."""
    if MINUTES:
        return

    def drawn(panels: drawing.Drawing) -> bytes:
        for panel in panels.panels:
            panel.axes(drawing.Figure())
        return b"a picture"

    for module in ("evidence.record", "evidence.replay.output", "report.write"):
        monkeypatch.setattr(f"fixnorm.{module}.png", drawn)
    monkeypatch.setattr("fixnorm.report.html.svg", lambda panel, prefix: "<svg></svg>")


def kept(answer: Answer, *, chatty: bool = False) -> None:
    """The promise of a command whose input may be wrong."""
    assert answer.crash is None, answer
    assert "Traceback" not in answer.err, answer
    if answer.code == 0:
        return
    assert answer.code == 2, answer
    if not chatty:
        check_line(answer)
    assert answer.changes == [], f"changed {answer.changes}: {answer}"


def one_line(call: Callable[[], object]) -> str | None:
    """The words of a refusal, as short as the promise has them; none where all was well."""
    try:
        call()
    except ValueError as error:
        said = str(error)
    else:
        return None
    assert said
    assert "\n" not in said
    assert len(said) < LONGEST
    return said


REPRODUCE = {
    record.name: ["reproduce", record.stem, "--from", record.name, "--out", "out"]
    for record in RECORDS
}
REPLAY = ["replay", "landscape.json", "--replays", "1", "--budget", "2", "--out", "out"]
REPLAY += ["--strategies", "paper,random,successive-halving"]
COMMANDS: dict[str, list[list[str]]] = {
    **{name: [arguments] for name, arguments in REPRODUCE.items()},
    "landscape.json": [REPLAY],
    "run/recipe.json": [["export", "run", "--out", "out.safetensors"], TRAIN],
    "run/result.json": [TRAIN],
    "run/classes.json": [["export", "run", "--out", "out.safetensors"]],
}
"""JSON files, and the commands that read them."""


@pytest.mark.parametrize("name", list(COMMANDS))
def test_damaged_json(name: str, originals: Path, place: Path) -> None:
    clean = (originals / name).read_bytes()
    content = json.loads(clean)

    def check(damage: bytes) -> None:
        for arguments in COMMANDS[name]:
            (place / name).write_bytes(damage)
            kept(answered(arguments, place))
            clear(place)

    fuzz(damaged_json(content) | damaged_json(content) | damaged_bytes(clean), check)


WHOLE = {
    "nothing": b"",
    "not text": b"\xff\xfe\x00{",
    "latin-1": '{"name": "é"}'.encode("latin-1"),
    "a list without end": b"[" * 10_000 + b"]" * 10_000,
    "an object without end": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a number without end": b"1" * 1_000_000,
    "no number": b'{"name": NaN, "lr": Infinity}',
    "a list": b"[]",
    "null": b"null",
    "two of them": b"{}{}",
}
"""In place of a whole file: never what any of ours is."""


@pytest.mark.parametrize("name", list(COMMANDS))
def test_another_file_in_place_of_ours(name: str, place: Path) -> None:
    for kind, content in WHOLE.items():
        for arguments in COMMANDS[name]:
            (place / name).write_bytes(content)
            answer = answered(arguments, place)
            kept(answer)
            assert answer.code == 2, f"{kind}: {answer}"
            clear(place)


def clear(place: Path) -> None:
    """Take away what a command that was content has made."""
    shutil.rmtree(place / "out", ignore_errors=True)
    (place / "out.safetensors").unlink(missing_ok=True)


def test_damaged_weights(originals: Path, place: Path) -> None:
    path = place / "run" / "weights.safetensors"
    clean = (originals / "run" / "weights.safetensors").read_bytes()
    length = struct.unpack("<Q", clean[:8])[0]
    header = json.loads(clean[8 : 8 + length])

    def check(damage: bytes) -> None:
        path.write_bytes(damage)
        kept(answered(["export", "run", "--out", "out.safetensors"], place))
        clear(place)

    def with_tensors(header: bytes) -> bytes:
        return struct.pack("<Q", len(header)) + header + clean[8 + length :]

    fuzz(damaged_bytes(clean) | damaged_json(header).map(with_tensors).map(Damage), check)


def test_damaged_weights_are_written_anew_by_the_same_command(place: Path) -> None:
    """What export advises is what train does."""
    path = place / "run" / "weights.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert "same fixnorm train command" in refused(["export", "run"], place)
    done = answered(TRAIN, place)
    assert done.code == 0, done
    assert path.read_bytes() == whole
    assert answered(["export", "run"], place).code == 0


def checkpoint_states(place: Path) -> dict[str, Any]:
    found = Checkpoints(place / "run" / "checkpoints").latest()
    assert found is not None
    return found[1]


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(key)


def _as(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.__setitem__(key, value)


def _first_weight(state: dict[str, Any]) -> None:
    name = next(iter(state["model"]))
    state["model"][name] = torch.zeros(3)


def _momentum(state: dict[str, Any]) -> None:
    kept_for = next(iter(state["optimizer"]["state"].values()))
    kept_for["momentum_buffer"] = torch.zeros(2)


def _group(state: dict[str, Any]) -> None:
    state["optimizer"]["param_groups"][0]["lr"] = "fast"


def _row(state: dict[str, Any]) -> None:
    state["rows"] = [{"epoch": 1}]


KEYS = ["step", "model", "optimizer", "ema", "scaler", "running", "angle", "rows", "detail"]
KEYS += ["largest_scale", "seconds"]
SPOILT: dict[str, Callable[[dict[str, Any]], None]] = {
    **{f"no {key}": _without(key) for key in KEYS},
    **{f"text as {key}": _as(key, "x") for key in KEYS},
    "step of the future": _as("step", 10**30),
    "a weight of another shape": _first_weight,
    "a momentum of another shape": _momentum,
    "another option": _group,
    "another row": _row,
    "no sums": _as("running", []),
    "sums of another length": _as("running", [torch.zeros(2)]),
    "time that runs back": _as("seconds", -1.0),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=list(SPOILT))
def test_a_checkpoint_that_lacks_something_is_passed_over(
    spoil: Callable[[dict[str, Any]], None], place: Path, tmp_path: Path
) -> None:
    """Named in a line, and the run goes on from the one before: the same weights in the end."""
    run = place / "run"
    expected = (run / "weights.safetensors").read_bytes()
    (run / "result.json").unlink()
    checkpoints = Checkpoints(run / "checkpoints", keep=9)
    state = checkpoint_states(place)
    last = state["step"]
    spoil(state)
    checkpoints.save(last, state)
    done = answered(TRAIN, place)
    assert done.code == 0, done
    assert "passed over: " in done.err
    assert f"step-{last:09d}.ckpt is no state of this run: " in done.err
    assert f"going on from step {last - 1} " in done.err
    assert (run / "weights.safetensors").read_bytes() == expected


def test_damaged_checkpoints(originals: Path, place: Path) -> None:
    checkpoints = sorted((place / "run" / "checkpoints").iterdir())
    clean = checkpoints[-1].read_bytes()
    (place / "run" / "result.json").unlink()
    saved = shutil.copytree(place / "run", place / "saved")

    def check(damage: bytes) -> None:
        checkpoints[-1].write_bytes(damage)
        kept(answered(TRAIN, place), chatty=True)
        shutil.rmtree(place / "run")
        shutil.copytree(saved, place / "run")

    fuzz(damaged_bytes(clean), check, share=0.3)


# -- studies ---------------------------------------------------------------------------------------


REPORT = ["report", "study", "--out", "out"]
ROWS = {
    "study_user_attributes": "value_json",
    "trial_user_attributes": "value_json",
    "trial_params": "distribution_json",
}


def test_damaged_study_files(originals: Path, place: Path) -> None:
    clean = (originals / "study" / "study.db").read_bytes()

    def check(damage: bytes) -> None:
        (place / "study" / "study.db").write_bytes(damage)
        kept(answered(REPORT, place))
        clear(place)

    fuzz(damaged_bytes(clean), check)


@pytest.mark.parametrize("table", ROWS)
def test_changed_studies(table: str, originals: Path, place: Path) -> None:
    """What a study says, in words of another program or of a later version."""
    path, column = place / "study" / "study.db", ROWS[table]
    clean = (originals / "study" / "study.db").read_bytes()
    with sqlite3.connect(path) as database:
        rows = database.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    database.close()
    values = [(rowid, json.loads(text)) for rowid, text in rows]

    def check(change: tuple[int, bytes]) -> None:
        rowid, text = change
        path.write_bytes(clean)
        with sqlite3.connect(path) as database:
            sql = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            database.execute(sql, (text.decode(), rowid))
        database.close()
        kept(answered(REPORT, place))
        clear(place)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            before = listing(place)
            if one_line(lambda: search(Path("study"))) is not None:
                assert before.keys() == listing(place).keys()

    def changed(row: tuple[int, Any]) -> st.SearchStrategy[tuple[int, bytes]]:
        return st.tuples(st.just(row[0]), damaged_json(row[1]))

    fuzz(st.sampled_from(values).flatmap(changed), check)


STUDIES: dict[str, str] = {
    "another direction": "UPDATE study_directions SET direction = 'MINIMIZE'",
    "a value less": "DELETE FROM trial_values WHERE trial_id = 1",
    "a slot less": "DELETE FROM trial_user_attributes WHERE trial_id = 1 AND key = 'slot'",
    "a trial less": "DELETE FROM trials WHERE trial_id = 1",
    "another lr": "UPDATE trial_params SET param_value = 1.0 WHERE trial_id = 1",
    "another winner": "UPDATE trial_values SET value = 99.0 WHERE trial_id = 2",
    "no number": "UPDATE trial_values SET value = NULL, value_type = 'INF_POS' WHERE trial_id = 1",
    "no settings": "DELETE FROM study_user_attributes",
    "a newer schema": "UPDATE alembic_version SET version_num = 'v99.0.0.a'",
    "no schema at all": "DROP TABLE trials",
    "tables of another program": "CREATE TABLE customers (id INTEGER)",
    "other columns": "ALTER TABLE studies RENAME COLUMN study_name TO title",
    "a state of its own": "UPDATE trials SET state = 'PRUNED' WHERE trial_id = 1",
}


@pytest.mark.parametrize("sql", STUDIES.values(), ids=list(STUDIES))
def test_a_study_that_is_not_as_we_left_it_is_refused(sql: str, place: Path) -> None:
    path = place / "study" / "study.db"
    with sqlite3.connect(path) as database:
        database.execute(sql)
    database.close()
    refused(REPORT, place)


@pytest.mark.parametrize("tables", ["customers (id)", "studies (id, title)", "alembic_version (v)"])
@pytest.mark.parametrize("command", ["tune", "report"])
def test_a_database_of_another_program_is_left_as_it_is(
    tables: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "study").mkdir()
    with sqlite3.connect(tmp_path / "study" / "study.db") as database:
        database.execute(f"CREATE TABLE {tables}")
    database.close()
    arguments = ["report", "study"] if command == "report" else ["tune", "--out", "study"]
    assert "another program's database" in refused(arguments, tmp_path)


def _hold(lock: Path, taken: Any, done: Any) -> None:
    with held(lock):
        taken.set()
        done.wait(60)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_driver_makes_no_database_beside_one_that_is_about_to(tmp_path: Path) -> None:
    """Of several that begin at once one wins; the others say who it is."""
    processes = multiprocessing.get_context("fork")
    taken, done = processes.Event(), processes.Event()
    lock = tmp_path / "study.db.lock"
    winner = processes.Process(target=_hold, args=(lock, taken, done))
    winner.start()
    try:
        assert taken.wait(60)
        (tmp_path / "study.db").touch()  # SQLite's first moment
        with pytest.raises(ValueError, match=rf"belongs to process {winner.pid} on "):
            search(tmp_path)
        assert (tmp_path / "study.db").stat().st_size == 0
    finally:
        done.set()
        winner.join(60)
    search(tmp_path)
    assert (tmp_path / "study.db").stat().st_size


# -- files of others -------------------------------------------------------------------------------


OVER: dict[str, tuple[list[str], str]] = {
    "tune, a result": (["tune", "--out", "out"], "out/result.json"),
    "tune, a page": (["tune", "--out", "out"], "out/report.html"),
    "tune, pictures": (["tune", "--out", "out"], "out/figures/lr.png"),
    "report, a page": (REPORT, "out/report.html"),
    "report, pictures": (REPORT, "out/figures/my.png"),
    "replay, numbers": (REPLAY, "out/replay.json"),
    "replay, a table": (REPLAY, "out/table.md"),
    "replay, a figure": (REPLAY, "out/regret.png"),
    "reproduce, numbers": (REPRODUCE["table3.json"], "out/table3.json"),
    "reproduce, a page": (REPRODUCE["table3.json"], "out/table3.html"),
    "reproduce, a table": (REPRODUCE["table3.json"], "out/table3.md"),
    "reproduce, a figure": (REPRODUCE["table3.json"], "out/table3.png"),
    "train": (["train", "digits", "--out", "out"], "out/notes.txt"),
    "train, a lock": (["train", "digits", "--out", "out"], "out/.lock"),
    "tune, a lock": (["tune", "--out", "out"], "out/study.db.lock"),
    "export": (["export", "run", "--out", "out/m.safetensors"], "out/m.safetensors"),
}


@pytest.mark.parametrize("content", [b"mine", b"{}", b"<!doctype html><title>x</title>"])
@pytest.mark.parametrize(("arguments", "file"), OVER.values(), ids=list(OVER))
def test_files_of_others_are_not_written_over(
    arguments: list[str], file: str, content: bytes, place: Path
) -> None:
    (place / file).parent.mkdir(parents=True)
    (place / file).write_bytes(content)
    assert str(Path(file).parent.parts[0]) in refused(arguments, place)


def test_a_search_does_not_go_into_the_folder_of_a_training(place: Path) -> None:
    assert "the folder of a training" in refused(["tune", "--out", "run"], place)


@pytest.mark.parametrize("arguments", [REPORT, REPRODUCE["table3.json"], REPLAY])
def test_our_own_files_are_updated(arguments: list[str], place: Path) -> None:
    first = answered(arguments, place)
    again = answered(arguments, place)
    assert (first.code, again.code) == (0, 0), again
    assert first.after.keys() == again.after.keys()


def test_a_page_of_before_is_ours(place: Path) -> None:
    """Pages of version 0.1 did not say whose they are."""
    assert answered(REPORT, place).code == 0
    page = place / "out" / "report.html"
    text = page.read_text()
    mark = '<meta name="generator" content="fixnorm">'
    assert mark in text
    page.write_text(text.replace(mark, ""))
    assert answered(REPORT, place).code == 0
    assert mark in page.read_text()


# -- names as paths --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../escape", "/tmp/escape", "a/b", "", ".", "..", "-x", "a b"])
@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_name_does_not_leave_its_folder(command: str, name: str, tmp_path: Path) -> None:
    assert "name: " in refused([command, "digits", f"--set=name={name}"], tmp_path)


@pytest.mark.parametrize("name", ["what?", "a%20b", "{x}", "[bold]", "a b#c&d=e", "ü", ":memory:"])
def test_a_study_lies_where_it_was_asked_for(name: str, tmp_path: Path) -> None:
    search(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == [name]
    assert (tmp_path / name / "study.db").stat().st_size
    done = answered(["report", name], tmp_path)
    assert done.code == 0, done
    assert sorted(os.listdir(tmp_path)) == [name]


def test_markup_in_a_path_is_text(place: Path) -> None:
    (place / "run").rename(place / "[bold")
    (place / "[").mkdir()
    for name in ("[/x].safetensors", "[red].safetensors"):
        done = answered(["export", "[bold", "--out", name], place)
        assert done.code == 0, done
        assert (place / name).exists()
        assert name in done.out
    assert "[/x]" in refused(["export", "[/x]"], place)


COCO = {
    "images": [{"id": 1, "file_name": "1.jpg", "height": 8, "width": 8}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4], "area": 16, "iscrowd": 0}
    ],
    "categories": [{"id": 1, "name": "cell"}],
}


@pytest.mark.parametrize("name", ["../1.jpg", "/etc/passwd", "a/../../b.jpg", "", "..", "a\0b"])
def test_a_data_set_does_not_point_outside_itself(name: str, tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    content = json.loads(json.dumps(COCO))
    content["images"][0]["file_name"] = name
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="leads out of the images' folder"):
        read_coco_file(path)


def test_damaged_annotations(tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(COCO))
    assert read_coco_file(path).images

    def check(damage: bytes) -> None:
        path.write_bytes(damage)
        one_line(lambda: read_coco_file(path))

    fuzz(damaged_json(COCO) | damaged_bytes(path.read_bytes()), check)


# -- special files ---------------------------------------------------------------------------------


SPECIAL = ["study/study.db", "landscape.json", "table3.json", "run/recipe.json", "run/result.json"]
SPECIAL += ["run/weights.safetensors", "run/classes.json"]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _circle(path: Path) -> None:
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize("make", [_pipe, _device, _circle, _folder, _endless])
@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_is_refused_at_once(
    name: str, make: Callable[[Path], None], place: Path
) -> None:
    commands = {
        "study/study.db": [REPORT, ["tune", "--out", "study"]],
        "run/weights.safetensors": [["export", "run", "--out", "out.safetensors"]],
    }
    (place / name).unlink()
    make(place / name)
    for arguments in commands.get(name) or COMMANDS[name]:
        refused(arguments, place, seconds=20)


def test_curves_that_are_no_file_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.csv")
    assert read_curves(tmp_path) == {}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    from PIL import Image

    for split in ("train", "val"):
        for name in ("ant", "bee"):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for k in range(3):
                Image.new("RGB", (8, 8), (k, 0, 0)).save(folder / f"{k}.png")
    return tmp_path / "images"


def opened(images: Path) -> Any:
    from fixnorm.data import DataSettings, open_data

    settings = DataSettings(image_size=8, train_crop="none", eval_crop="none")
    return open_data("imagefolder", images, settings=settings, seed=0)


def test_special_files_and_circles_among_images_are_left_out_and_counted(images: Path) -> None:
    os.mkfifo(images / "train" / "ant" / "pipe.png")
    (images / "train" / "ant" / "zero.png").symlink_to("/dev/zero")
    (images / "train" / "ant" / "circle.png").symlink_to("circle.png")
    (images / "train" / "ant" / "up").symlink_to("..")
    (images / "train" / "ant" / "other").symlink_to("../bee")
    (images / "train" / "ant" / "root").symlink_to(images)
    (images / "train" / "again").symlink_to(".")
    elsewhere = images.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(images / "val" / "ant" / "0.png", elsewhere)
    (elsewhere / "self").symlink_to(elsewhere)
    (images / "train" / "ant" / "more").symlink_to(elsewhere)
    data = opened(images)
    assert data.classes == ("ant", "bee")
    assert len(data.train) == 7  # the folder elsewhere is one of the class's own
    assert data.left_out == 8
    assert "8 left out that are no regular files" in data.describe()


def test_a_folder_that_cannot_be_read_is_not_called_empty(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).endswith("bee"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    with pytest.raises(DataError, match=r"cannot read the folder .*bee: Permission denied"):
        opened(images)


# -- weights of others, and our own ----------------------------------------------------------------


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.getenv, ("HOME",)


def _pickled(path: Path) -> None:
    torch.save({"a": _Evil()}, path)


def _text(path: Path) -> None:
    path.write_text("no weights")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("make", [_pickled, _text, _pipe, _folder])
def test_refused_weights_give_no_unsafe_advice(
    make: Callable[[Path], None], suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"weights{suffix}"
    make(path)
    with pytest.raises(ValueError, match="weights") as caught:
        load_backbone(torch.nn.Identity(), "x", str(path))
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_runs_write_equal_bytes(originals: Path, tmp_path: Path) -> None:
    """The library keeps metadata in a hash map, whose order differs from file to file."""
    done = answered(TRAIN, tmp_path)
    assert done.code == 0, done
    for command in (["export", "run"], ["export", "run", "--out", "again.safetensors"]):
        assert answered(command, tmp_path).code == 0
    digests = {
        hashlib.sha256((place / "run" / "weights.safetensors").read_bytes()).hexdigest()
        for place in (originals, tmp_path)
    }
    assert len(digests) == 1
    exported = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert (tmp_path / "again.safetensors").read_bytes() == exported
