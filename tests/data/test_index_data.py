"""The index of a big folder tells what a look into the folder would, or is not used."""

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixnorm.data import DataError, folder, index
from fixnorm.data.folder import open_folder
from fixnorm.data.images import FileImages, Source
from fixnorm.system.cache import cache_folder

MakeFolder = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every folder is a big one, and was changed long ago."""
    monkeypatch.setattr(index, "MANY", 1)
    monkeypatch.setattr(index, "_SETTLED", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fixnorm" / "folders"


@pytest.fixture
def root(make_folder: MakeFolder) -> Path:
    made = make_folder(train=3, val=2)
    (made / "train" / "bee" / "deeper").mkdir()
    (made / "train" / "ant" / "00.png").rename(made / "train" / "bee" / "deeper" / "ö \udcff.png")
    os.mkfifo(made / "val" / "cat" / "pipe.png")
    return made


def content(source: Source) -> tuple[object, ...]:
    parts = [source.classes, source.left_out]
    for images in (source.train, source.val):
        assert isinstance(images, FileImages)
        parts += [[str(images.path(i)) for i in range(len(images.labels))], images.labels.tolist()]
    return tuple(parts)


def listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """What is there, without any index."""
    with monkeypatch.context() as patch:
        patch.setattr(folder, "read_index", lambda _: None)
        patch.setattr(folder, "write_index", lambda *_: None)
        return content(open_folder(root))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were looked into."""
    seen: list[str] = []
    entries = folder.entries_of

    def noted(at: str | Path) -> list[os.DirEntry[str]]:
        seen.append(str(at))
        return entries(at)

    monkeypatch.setattr(folder, "entries_of", noted)
    return seen


def test_the_second_start_looks_into_no_folder(
    root: Path, cache: Path, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_folder(root)
    assert len(list(cache.iterdir())) == 1
    assert len(looks) == 2 + 6 + 1
    looks.clear()
    second = open_folder(root)
    assert not looks
    assert content(second) == content(first) == listed(root, monkeypatch)
    assert second.train.image(4).tobytes() == first.train.image(4).tobytes()
    few = np.array([1, 6, 8])
    assert second.train.subset(few).path(1) == first.train.path(6)
    # the folder is known by where it is, however it is called
    monkeypatch.chdir(root.parent)
    looks.clear()
    assert [str(open_folder(Path("set")).train.path(0)), looks] == ["set/train/ant/01.png", []]


def added(root: Path) -> None:
    (root / "train" / "ant" / "99.png").touch()


def removed(root: Path) -> None:
    (root / "val" / "cat" / "00.png").unlink()


def renamed_below(root: Path) -> None:
    deeper = root / "train" / "bee" / "deeper"
    next(deeper.iterdir()).rename(deeper / "a.png")


def a_class_more(root: Path) -> None:
    (root / "train" / "dog").mkdir()
    (root / "train" / "dog" / "0.png").touch()


def added_and_dated_back(root: Path) -> None:
    ant = root / "train" / "ant"
    before = ant.stat()
    added(root)
    os.utime(ant, ns=(before.st_atime_ns, before.st_mtime_ns))


def another_folder_in_its_place(root: Path) -> None:
    ant = root / "train" / "ant"
    ant.rename(root / "ant")
    ant.mkdir()
    (ant / "other.png").touch()


@pytest.mark.parametrize(
    "change",
    [
        added,
        removed,
        renamed_below,
        a_class_more,
        added_and_dated_back,
        another_folder_in_its_place,
    ],
)
def test_a_changed_folder_is_listed_anew(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    before = content(open_folder(root))
    time.sleep(0.01)  # the clock of the file system goes by milliseconds
    change(root)
    found = content(open_folder(root))
    assert found == listed(root, monkeypatch) != before
    assert content(open_folder(root)) == found


def test_errors_are_those_of_the_folder(root: Path, cache: Path) -> None:
    open_folder(root)
    time.sleep(0.01)
    (root / "val" / "emu").mkdir()
    with pytest.raises(DataError, match="empty class folder"):
        open_folder(root)


def spoilt(kind: str, path: Path) -> None:
    whole = path.read_bytes()
    if kind == "cut":
        path.write_bytes(whole[:-5])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "a flipped bit":
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    elif kind == "another file":
        path.write_bytes(b"PK\3\4" * 100)
    elif kind == "a folder":
        path.unlink()
        path.mkdir()
    elif kind == "a pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        magic, _, about, names = whole.split(b"\n", 3)
        values = json.loads(about)
        if kind == "of another root":
            values["root"] = "/elsewhere"
        else:
            del values["splits"][1]["counts"]
        rest = json.dumps(values).encode() + b"\n" + names
        path.write_bytes(b"\n".join([magic, index.hashlib.sha256(rest).hexdigest().encode(), rest]))


@pytest.mark.parametrize(
    "kind",
    [
        "cut",
        "empty",
        "a flipped bit",
        "another file",
        "a folder",
        "a pipe",
        "of another root",
        "of another version",
    ],
)
def test_what_is_no_whole_index_is_none(
    root: Path, cache: Path, looks: list[str], kind: str
) -> None:
    expected = content(open_folder(root))
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    spoilt(kind, path)
    looks.clear()
    assert content(open_folder(root)) == expected
    assert looks
    if kind != "a folder":  # nothing of another's is removed
        assert path.read_bytes() == whole


def test_an_index_of_another_user_is_none(
    root: Path, cache: Path, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_folder(root)
    looks.clear()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    open_folder(root)
    assert looks


@pytest.mark.parametrize("place", ["a file", "not absolute", "no home"])
def test_without_a_cache_nothing_is_kept(
    root: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "a file":
        (tmp_path / "cache").write_text("")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setenv("HOME", str(root / "train" / "ant" / "01.png"))
    if place == "no home":
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
        assert cache_folder() is None
    before = sorted(tmp_path.rglob("*"))
    assert content(open_folder(root)) == content(open_folder(root))
    assert sorted(tmp_path.rglob("*")) == before


def test_only_big_folders_whose_times_tell_of_changes_have_one(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(index, "MANY", 100_000)
        open_folder(root)
    with monkeypatch.context() as patch:  # just made: it may change within one tick of the clock
        patch.setattr(index, "_SETTLED", 10**12)
        open_folder(root)
    with monkeypatch.context() as patch:  # a file system without times of its own
        patch.setattr(folder, "stamp", lambda _: (1, 10**9, 10**9))
        open_folder(root)
    assert not cache.exists()


def _open(root: Path, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    for _ in range(20):
        for path in (Path(os.environ["XDG_CACHE_HOME"]) / "fixnorm" / "folders").glob("*.index"):
            path.unlink(missing_ok=True)
        assert len(open_folder(root).train.labels) == 9


def test_two_processes_at_once(root: Path, cache: Path) -> None:
    """Each writes and removes; whoever reads finds a whole index or none."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(2)
    both = [fork.Process(target=_open, args=(root, barrier)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert not list(cache.glob("*.part"))
