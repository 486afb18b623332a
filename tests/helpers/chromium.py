"""A page as headless Chromium shows it: its console, what it asks for, what it looks like.

Chromium is driven over its debugging pipe (file descriptors 3 and 4, JSON ended by NUL), which
needs neither a port nor a library.
"""

from __future__ import annotations

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
PATIENCE = 120.0
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
    """Pixels by which the page is wider than its window."""

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


def inspect(page: Path, *, width: int = 1280, height: int = 900) -> Inspection:
    """Open a page from disk and look at all of it."""
    with _opened(page, width, height, dark=False) as tab:
        figures = tab.evaluate(_FIGURES)
        overflow = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        tab.settle()
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
    program = browser()
    if program is None:
        raise RuntimeError("Chromium is not installed: apt install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _LAUNCH, str(to_browser), str(to_us), *words],
            pass_fds=(to_browser, to_us),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(to_us)
        try:
            tab = _Tab(reader=from_browser, writer=from_us)
            tab.open(page, width, height, dark=dark)
            yield tab
            tab.close()
            process.wait(PATIENCE)
        finally:
            os.close(from_us)
            os.close(from_browser)
            if process.poll() is None:
                process.kill()
                process.wait()


@dataclass
class _Tab:
    """One tab, and all that it has told."""

    reader: int
    writer: int
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _events: set[str] = field(default_factory=set)
    _session: str | None = None
    _last: int = 0
    _rest: bytes = b""

    def open(self, page: Path, width: int, height: int, *, dark: bool) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        moved = self.call("Page.navigate", url=page.resolve().as_uri())
        if "errorText" in moved:
            raise RuntimeError(f"{page} cannot be opened: {moved['errorText']}")
        while "Page.loadEventFired" not in self._events:
            self._hear()

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

    def close(self) -> None:
        self._session = None
        self.call("Browser.close")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        _write_all(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._last:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']['message']}")
                return dict(heard["result"])

    def _hear(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.reader], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise RuntimeError("Chromium says nothing")
            more = os.read(self.reader, 1 << 20)
            if not more:
                raise RuntimeError("Chromium has gone")
            self._rest += more
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
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
