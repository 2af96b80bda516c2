# SPDX-License-Identifier: GPL-3.0-or-later
"""A headless Chromium, driven by the protocol of its own developer tools."""

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 60.0

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium() -> str | None:
    """Where a Chromium is, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(chromium() is None, reason="needs Chromium: apt-get install chromium")


class Page:
    """One tab. problems: what the browser complained of, errors of scripts and what a policy forbade.
    requests: the address of everything that was asked for."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._held: bool = False  # The mouse button.
        self.problems: list[str] = []
        self.requests: list[str] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the browser, and note the events that come before its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._connection.send(json.dumps(message))
        while (reply := self._next()).get("id") != number:
            pass
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _next(self) -> dict[str, Any]:
        """The browser's next message, noted if it is an event."""
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=WAIT_S))
        method, event = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.problems.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        return message

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Go somewhere, on a screen of that size in pixels."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move, press or release the mouse: kind is mouseMoved, mousePressed or mouseReleased."""
        self._held = kind == "mousePressed" or (kind == "mouseMoved" and self._held)
        held = "left" if kind != "mouseMoved" else "none"
        buttons = int(self._held)
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=held, buttons=buttons, clickCount=1)

    def click(self, x: float, y: float) -> None:
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def key(self, name: str, *, shift: bool = False) -> None:
        """Press a key, such as Tab, Enter, ArrowUp or a letter."""
        held = 8 if shift else 0
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        code = codes.get(name, ord(name[0].upper()))
        pressed = {"key": name, "windowsVirtualKeyCode": code, "modifiers": held}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def text(self) -> str:
        """What somebody reads on the page."""
        return str(self.value("document.body.innerText"))

    def wait(self, done: Callable[[], object]) -> None:
        """Until the page has come to something."""
        end = time.perf_counter() + WAIT_S
        while not done():
            assert time.perf_counter() < end, f"{self.problems}\n{self.text()}"
            self.value("0")  # Events come with its answer.
            time.sleep(0.02)


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser with one tab, with its profile in a folder."""
    from websockets.sync.client import connect

    program = chromium()
    assert program is not None
    flags = ["--headless=new", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # which it refuses to have as root
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "HOME": str(folder)}
    process = subprocess.Popen([program, *flags, "about:blank"], env=environment, **streams)
    try:
        assert process.stderr is not None
        lines = (line for line in process.stderr if "DevTools listening on " in line)
        address = next(lines).split()[-1]
        with connect(address, max_size=None, open_timeout=WAIT_S, ping_interval=None) as connection:
            page = Page(connection)
            page.attach()
            yield page
    finally:
        process.terminate()
        process.communicate()
