"""The browsers of the tests. Firefox is driven over Marionette, its own protocol: JSON over a socket."""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FIREFOX = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
START_SECONDS = 60
ANSWER_SECONDS = 600  # on a busy machine
PREFERENCES = """\
user_pref("marionette.port", 0);
user_pref("remote.prefs.recommended", true);
"""


class Firefox:
    """A connection to a running Firefox."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self.stream = self.socket.makefile("rb")
        self.n_commands = 0
        self._read()  # Firefox speaks first

    def _read(self) -> Any:
        """Read one message: its length in bytes, a colon, and JSON."""
        length = b""
        while not length.endswith(b":"):
            length += self.stream.read(1)
        return json.loads(self.stream.read(int(length[:-1])))

    def send(self, command: str, **parameters: Any) -> Any:
        """Send a command and return its value. Raises RuntimeError if Firefox reports an error."""
        self.n_commands += 1
        message = json.dumps([0, self.n_commands, command, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(message), message))
        _, _, error, result = self._read()
        if error is not None:
            raise RuntimeError(f"{command}: {error['message']}")
        return result

    def close(self) -> None:
        """Close the connection; Firefox goes on."""
        self.stream.close()
        self.socket.close()

    def goto(self, url: str) -> None:
        """Open an address and wait until the page is loaded."""
        self.send("WebDriver:Navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression. A promise is awaited."""
        # A script element, because Firefox runs a driver's script apart from the page's own variables.
        text = """
            const [expression, done] = arguments, script = document.createElement("script");
            script.textContent = `Promise.resolve(${expression}).then(value => ({ value }), String)
              .then(answer => dispatchEvent(new CustomEvent("answer", { detail: JSON.stringify(answer) })));`;
            addEventListener("answer", event => done(event.detail), { once: true });
            document.body.append(script);
            script.remove();"""
        answer = self.send("WebDriver:ExecuteAsyncScript", script=text, args=[script], scriptTimeout=100_000)
        found = json.loads(answer["value"])
        assert isinstance(found, dict), found  # a text is the page's error
        return found.get("value")

    def print(self, **options: Any) -> bytes:
        """Print the page and return the PDF."""
        return base64.b64decode(self.send("WebDriver:Print", **options)["value"])


@contextlib.contextmanager
def open_firefox(profile: Path) -> Iterator[Firefox]:
    """Start Firefox with a new profile in a folder, and stop it at the end."""
    (profile / "user.js").write_text(PREFERENCES, encoding="utf-8")
    port_file = profile / "MarionetteActivePort"
    command = [str(FIREFOX), "--headless", "--no-remote", "--marionette", "--profile", str(profile)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while not port_file.exists() or not port_file.read_text().strip():
            assert process.poll() is None and time.monotonic() < end, "Firefox did not start"
            time.sleep(0.1)
        with contextlib.closing(Firefox(int(port_file.read_text()))) as browser:
            browser.send("WebDriver:NewSession", capabilities={})
            yield browser
    finally:
        process.terminate()
        process.wait()
