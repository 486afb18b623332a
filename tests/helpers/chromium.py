"""A page as headless Chromium shows it: its console, what it asks for, what it looks like.

Chromium is driven over its debugging pipe (file descriptors 3 and 4, JSON ended by NUL), which
needs neither a port nor a library. One serves all pages, each in a tab that shares nothing.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 600.0
"""Seconds after which a browser that says nothing is given up: far beyond what any page takes."""

_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
for end in ends: os.close(end)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Gives the pipe the numbers that Chromium expects and becomes Chromium."""

_FIGURES = """
[...document.querySelectorAll("figure")].map((figure) => {
  const inside = figure.closest("details");
  if (inside) inside.open = true;
  return {
    id: figure.id,
    panels: [...figure.querySelectorAll("svg")].map((svg) => {
      const box = svg.getBoundingClientRect();
      const drawn = [...svg.querySelectorAll("path, use, text, image")].filter((shape) => {
        const inner = shape.getBoundingClientRect();
        return inner.width + inner.height > 0;
      });
      return {width: box.width, height: box.height, shapes: drawn.length};
    }),
  };
})
"""

_OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


def browser() -> str | None:
    """Where Chromium is, if it is installed."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@dataclass(frozen=True)
class PanelBox:
    """A panel as it is laid out, in pixels."""

    width: float
    height: float
    shapes: int
    """How many of its shapes have an extent."""

    @property
    def visible(self) -> bool:
        return self.width > 50 and self.height > 50 and self.shapes > 5


@dataclass(frozen=True)
class Inspection:
    """What a browser made of a page."""

    console: list[str]
    """Errors and warnings: of scripts, of loading, of the parser."""
    figures: dict[str, list[PanelBox]]
    """The panels of each ``<figure>``, by its id."""
    requests: list[str]
    """Every address that was asked for."""
    overflow: int
    """Pixels by which the page is wider than its window, where that is most."""

    def problems(self, expected: set[str]) -> list[str]:
        """What is wrong, in words; ``expected`` are the ids of figures that must be there."""
        found = [f"console: {line}" for line in self.console]
        found += [f"no figure {name}" for name in sorted(expected - self.figures.keys())]
        for name, panels in self.figures.items():
            if not panels:
                found.append(f"figure {name} is empty")
            found += [f"figure {name} has a panel {p}" for p in panels if not p.visible]
        found += [f"asked for {url}" for url in self.requests[1:] if not url.startswith("data:")]
        return found


def inspect(page: Path, *, width: int = 1280, then: tuple[int, ...] = ()) -> Inspection:
    """Open a page from disk and look at all of it; ``then``: other widths of the window."""
    with _opened(page, width, 900, dark=False) as tab:
        figures = tab.evaluate(_FIGURES)
        overflow = tab.evaluate(_OVERFLOW)
        tab.settle()
        for other in then:
            tab.resize(other, 900)
            tab.settle()
            overflow = max(overflow, tab.evaluate(_OVERFLOW))
        return Inspection(
            console=tab.console,
            figures={f["id"]: [PanelBox(**panel) for panel in f["panels"]] for f in figures},
            requests=tab.requests,
            overflow=max(0, int(overflow)),
        )


def evaluate(page: Path, script: str, *, width: int = 1280) -> Any:
    """The value of a script in an opened page."""
    with _opened(page, width, 900, dark=False) as tab:
        return tab.evaluate(script)


def screenshot(
    page: Path,
    png: Path,
    width: int = 1280,
    height: int | None = None,
    *,
    dark: bool = False,
    opened: bool = False,
) -> Path:
    """A picture of the page: its first ``height`` pixels, or all; ``opened``: with all details."""
    with _opened(page, width, height or 900, dark=dark) as tab:
        if opened:
            tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        tall = height or int(tab.evaluate("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
        shot = tab.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        png.write_bytes(base64.b64decode(shot["data"]))
    return png


@contextmanager
def _opened(page: Path, width: int, height: int, *, dark: bool) -> Iterator[_Tab]:
    try:
        with _browser().tab() as tab:
            tab.open(page, width, height, dark=dark)
            yield tab
    except BaseException:  # it may be the browser's fault: the next page gets another
        _browser().close()
        _browser.cache_clear()
        raise


@cache
def _browser() -> _Browser:
    program = browser()
    if program is None:
        raise RuntimeError("Chromium is not installed: apt install chromium")
    made = _Browser(program)
    atexit.register(made.close)
    return made


class _Browser:
    """A running Chromium."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._writer = os.pipe()
        self._reader, to_us = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-I", "-c", _LAUNCH, str(to_browser), str(to_us), *words],
            pass_fds=(to_browser, to_us),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(to_us)
        self._last = 0
        self._rest = b""

    @contextmanager
    def tab(self) -> Iterator[_Tab]:
        """A tab with a cache of its own, for a while."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        yield _Tab(self, attached["sessionId"])
        self.call("Target.disposeBrowserContext", browserContextId=context)

    def call(self, method: str, tab: _Tab | None = None, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if tab is not None:
            message["sessionId"] = tab.session
        _write_all(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            heard = self.hear(tab)
            if heard.get("id") == self._last:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']['message']}")
                return dict(heard["result"])

    def hear(self, tab: _Tab | None) -> dict[str, Any]:
        """The next message; the tab takes note of what is its own."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reader], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise RuntimeError("Chromium says nothing")
            more = os.read(self._reader, 1 << 20)
            if not more:
                raise RuntimeError("Chromium has gone")
            self._rest += more
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        if tab is not None and message.get("sessionId") == tab.session:
            tab.note(message.get("method", ""), message.get("params", {}))
        return message

    def close(self) -> None:
        """End it; a second time is one too many."""
        if self._process is not None:
            os.close(self._writer)
            os.close(self._reader)
            self._process.kill()
            self._process.wait()
            self._process = None
            self._profile.cleanup()


@dataclass
class _Tab:
    """One tab, and all that it has told."""

    browser: _Browser
    session: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _events: set[str] = field(default_factory=set)

    def open(self, page: Path, width: int, height: int, *, dark: bool) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        moved = self.call("Page.navigate", url=page.resolve().as_uri())
        if "errorText" in moved:
            raise RuntimeError(f"{page} cannot be opened: {moved['errorText']}")
        while "Page.loadEventFired" not in self._events:
            self.browser.hear(self)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"script failed: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait for two frames, in which lately opened parts are laid out and may complain."""
        self.call(
            "Runtime.evaluate",
            expression="new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))",
            awaitPromise=True,
        )

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self, **parameters)

    def note(self, method: str, told: dict[str, Any]) -> None:
        self._events.add(method)
        if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            words = [str(a.get("value", a.get("description"))) for a in told["args"]]
            self.console.append(f"{told['type']}: {' '.join(words)}")
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", details["text"])
            self.console.append(f"exception: {thrown}")
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            entry = told["entry"]
            self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}".strip())
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
