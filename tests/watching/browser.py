"""A headless Chromium, driven over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Browser", "opened"]

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


class Browser:
    """One tab of a browser.

    Args:
        reading: descriptor of the messages of the browser.
        writing: descriptor of the messages to it.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def open(self, address: str) -> None:
        """Go to an address."""
        self._call("Page.navigate", url=address)

    def value(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page; None while it navigates."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        return found.get("result", {}).get("value")

    def press(self, key: str) -> None:
        """Press a key, such as "ArrowRight", in the element that has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Move the mouse to a place, press its button, and release it at another one."""
        places = [("mouseMoved", start), ("mousePressed", start), ("mouseMoved", end)]
        for kind, (x, y) in [*places, ("mouseReleased", end)]:
            held = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def look(self, *, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
        """Set the size of the page, and whether it is dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """Return a screenshot as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                piece = os.read(self._reading, 1 << 16)
                assert piece, "the browser has ended"
                self._rest += piece
            line, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == number:
                found: dict[str, Any] = answer.get("result", {})
                return found


@contextmanager
def opened(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; it ends with the block."""
    assert CHROMIUM is not None
    theirs, ours = os.pipe()
    ours_too, theirs_too = os.pipe()
    flags = "--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe"
    script = f'exec "$0" {flags} --user-data-dir="$1" 3<&{theirs} 4>&{theirs_too}'
    process = subprocess.Popen(
        ["bash", "-c", script, CHROMIUM, str(profile)],
        pass_fds=(theirs, theirs_too),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(theirs_too)
    try:
        yield Browser(ours_too, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(ours_too)
