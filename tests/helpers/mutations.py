"""Damage to files, as hypothesis draws it: to what a JSON file says, and to bytes of any file."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

__all__ = ["MINUTES", "Damage", "damaged_bytes", "damaged_json", "fuzz"]

T = TypeVar("T")

MINUTES = float(os.environ.get("FIXNORM_FUZZ_MINUTES", "0"))
"""Of each fuzzer; none: a few examples each, the same every time."""

_EXAMPLES = 9
_PHASES = [Phase.generate] if MINUTES else [Phase.generate, Phase.shrink]
_COMMON = settings(
    derandomize=not MINUTES,
    database=None,
    deadline=None,
    phases=_PHASES,
    suppress_health_check=list(HealthCheck),
)


def fuzz(damage: st.SearchStrategy[T], check: Callable[[T], None], *, share: float = 1.0) -> None:
    """Hold the check against much damage: some examples, or as many as the minutes allow.

    ``share`` of the usual number of examples, where each one takes long.
    """
    end, failed = time.monotonic() + 60 * MINUTES, False

    @settings(_COMMON, max_examples=max(round(share * (MINUTES * 1200 or _EXAMPLES)), 1))
    @given(damage)
    def run(one: T) -> None:
        nonlocal failed
        if MINUTES and not failed and time.monotonic() > end:
            return
        try:
            check(one)
        except BaseException:
            failed = True  # and must fail again when it is shown
            raise

    run()


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


STRANGE: list[Any] = [
    None,
    True,
    False,
    "",
    "x",
    "nan",
    "../../escape",
    "/etc/passwd",
    "[/x] [bold]",
    "a\nb",
    "\u0000",
    "\u202e",
    "9" * 400,
    [],
    {},
    [[]],
    [None],
    {"x": {}},
    0,
    -1,
    1,
    2**31,
    2**63,
    10**30,
    -(10**30),
    10**400,
    0.5,
    1e-300,
    1e300,
    float("nan"),
    float("inf"),
    -float("inf"),
    _nested(300),
]
"""What may stand where something else should."""


def _places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _places(value, (*at, key))
    elif isinstance(content, list):
        for place, value in enumerate(content[:6]):  # the others are like them
            yield from _places(value, (*at, place))


class _Held:
    """Something that hypothesis need not print."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __repr__(self) -> str:
        return "…"


def damaged_json(content: Any) -> st.SearchStrategy[bytes]:
    """JSON with one to three things wrong in it."""
    return _damaged_json(_Held(content))


def damaged_bytes(content: bytes) -> st.SearchStrategy[bytes]:
    """Cut off, changed, with too much, or something else altogether."""
    return _damaged_bytes(_Held(content))


class Damage(bytes):
    """Bytes that are shown in part."""

    def __repr__(self) -> str:
        return f"{len(self)} bytes: {bytes(self[:600])!r}"


@st.composite
def _damaged_json(draw: st.DrawFn, held: _Held) -> bytes:
    content = copy.deepcopy(held.content)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(content))
        at = places[draw(st.integers(0, len(places) - 1))]
        content = _spoilt(draw, content, at)
    return Damage(json.dumps(content).encode())


def _spoilt(draw: st.DrawFn, content: Any, at: tuple[Any, ...]) -> Any:
    if not at:
        return copy.deepcopy(draw(st.sampled_from([content, *STRANGE])))
    inside = content
    for step in at[:-1]:
        inside = inside[step]
    last, how = at[-1], draw(st.sampled_from(["strange"] * 4 + ["drop", "add", "nest", "scale"]))
    if how == "drop":
        del inside[last]
    elif how == "add" and isinstance(inside, dict):
        inside[draw(st.sampled_from(["new", "", "a b", "x" * 300]))] = 1
    elif how == "add":
        inside.insert(last, copy.deepcopy(inside[last]))
    elif how == "nest":
        inside[last] = draw(st.sampled_from([[inside[last]], {"x": inside[last]}]))
    elif how == "scale" and isinstance(inside[last], int | float) and abs(inside[last]) < 1e200:
        inside[last] = inside[last] * draw(st.sampled_from([-1, 0, 1e-9, 1.5, 100, 1e12]))
    else:
        inside[last] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
    return content


DEEP = b'{"a":' * 10_000 + b"1" + b"}" * 10_000


@st.composite
def _damaged_bytes(draw: st.DrawFn, held: _Held) -> bytes:
    return Damage(_bytes(draw, held.content))


def _bytes(draw: st.DrawFn, content: bytes) -> bytes:
    end = max(len(content) - 1, 0)
    how = draw(
        st.sampled_from(["flip"] * 4 + ["cut"] * 2 + ["empty", "bom", "utf16", "deep", "digits"])
        | st.sampled_from(["twice", "zeros", "text", "drop"])
    )
    if how == "flip":
        spoilt = bytearray(content)
        for at in draw(st.lists(st.integers(0, end), min_size=1, max_size=4)):
            spoilt[at] ^= 1 << draw(st.integers(0, 7))
        return bytes(spoilt)
    if how == "cut":
        return content[: draw(st.integers(0, end))]
    if how == "drop":
        at = draw(st.integers(0, end))
        return content[:at] + content[at + draw(st.integers(1, 64)) :]
    return {
        "empty": b"",
        "bom": b"\xef\xbb\xbf" + content,
        "utf16": content.decode("latin-1").encode("utf-16"),
        "deep": DEEP,
        "digits": b'{"a": ' + b"9" * 5000 + b"}",
        "twice": content + content,
        "zeros": bytes(len(content)),
        "text": b"not what it should be\n",
    }[how]
