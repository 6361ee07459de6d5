"""A real Chromium without a window, driven over its DevTools protocol through two pipes.

``--remote-debugging-pipe``: commands on descriptor 3, answers and events on 4, JSON with a zero byte behind each.
Source: chromedevtools.github.io/devtools-protocol.
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

COMMAND: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_S: Final = 60.0


class Failed(Exception):
    """A command was refused, or a page did not do what was waited for."""


class Chromium:
    """One tab. ``errors``: what the console and the content security policy complained of."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.errors: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False, scale: float = 1.0) -> None:
        """Set the window, and whether the reader prefers the dark."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=features)

    def go(self, url: str) -> None:
        """Load a page."""
        found = self._ask("Page.navigate", url=url)
        if found.get("errorText"):
            raise Failed(found["errorText"])
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of an expression."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise Failed(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def until(self, script: str, wait_s: float = WAIT_S) -> Any:
        """Return the value of an expression once it is true."""
        deadline = time.monotonic() + wait_s
        while True:
            with suppress(Failed):  # the page is being replaced by another
                if value := self.run(script):
                    return value
            if time.monotonic() > deadline:
                raise Failed(f"not in {wait_s} s: {script}")
            time.sleep(0.05)

    def key(self, name: str, text: str = "") -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self._ask("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=codes.get(name, 0), **more)

    def write(self, text: str) -> None:
        """Type a text."""
        self._ask("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Save what is in the window as PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number = number = self._number + 1
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise Failed(f"{method}: {message['error']}")
                result: dict[str, Any] = message.get("result", {})
                return result
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif event.get("method") == "Page.javascriptDialogOpening":
            self._number += 1
            answer = {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            os.write(self._to, json.dumps({**answer, "sessionId": self._session}).encode() + b"\0")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], WAIT_S)[0]:
                raise Failed("the browser is silent")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise Failed("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Start a browser with an empty profile; end it and what it started."""
    assert COMMAND is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="pocketmq-chromium-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run"]
        options += ["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-proxy-server"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        if os.getuid() == 0:
            options.append("--no-sandbox")  # its sandbox needs a user

        def take_pipes() -> None:
            read_end, write_end = os.dup(to_browser[0]), os.dup(from_browser[1])
            os.dup2(read_end, 3)
            os.dup2(write_end, 4)

        process = subprocess.Popen(
            [COMMAND, *options, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=take_pipes,
            close_fds=False,
            env={**os.environ, "TMPDIR": profile},
            start_new_session=True,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Chromium(to_browser[1], from_browser[0])
        finally:
            os.close(to_browser[1])
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(WAIT_S)
            os.close(from_browser[0])
