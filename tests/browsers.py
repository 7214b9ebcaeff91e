"""The browsers of the tests.

Firefox is driven over Marionette, its own protocol: JSON over a socket. WebKit is driven over WebDriver: JSON
over HTTP. WebKit has no headless mode, so it needs the virtual screen of Xvfb.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FIREFOX = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
WEBKIT_DRIVER = shutil.which("WebKitWebDriver")
WEBKIT = next(Path("/usr/lib").glob("*/webkit2gtk-*/MiniBrowser"), None)  # the browser that the driver starts
XVFB = shutil.which("Xvfb")
LOADED = """new Promise(loaded => {
  if (document.readyState === "complete") loaded(true);
  else addEventListener("load", () => loaded(true));
})"""
START_SECONDS = 60
ANSWER_SECONDS = 600  # long, because the machine may be busy
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
        self._read()  # Firefox sends the first message

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
        """Close the connection. Firefox keeps running."""
        self.stream.close()
        self.socket.close()

    def goto(self, url: str) -> None:
        """Open an address and wait until the page is loaded."""
        self.send("WebDriver:Navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression. A promise is awaited."""
        # Insert a script element, because a script of the driver cannot see the page's variables.
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

    def evaluate_document(self, script: str) -> Any:
        """Return the value of an expression that reads the document and none of the page's own variables.

        This also works on a page whose content security policy allows no scripts.
        """
        return self.send("WebDriver:ExecuteScript", script=f"return {script}", args=[])["value"]

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


class WebKit:
    """A connection to a running WebKitWebDriver, and to the browser that it has started."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/session"
        options = {"binary": str(WEBKIT), "args": ["--automation"]}
        capabilities = {"browserName": "MiniBrowser", "webkitgtk:browserOptions": options}
        session = self.send("", capabilities={"alwaysMatch": capabilities})
        self.url += f"/{session['sessionId']}"

    def send(self, path: str, **parameters: Any) -> Any:
        """Send a command and return its value. Raises RuntimeError if WebKit reports an error."""
        body = json.dumps(parameters).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()}") from None

    def close(self) -> None:
        """Close the browser. The driver keeps running."""
        urllib.request.urlopen(urllib.request.Request(self.url, method="DELETE"), timeout=ANSWER_SECONDS)

    def goto(self, url: str) -> None:
        """Open an address and wait until the page is loaded. The driver itself does not always wait."""
        self.send("/url", url=url)
        self.evaluate(LOADED)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression. A promise is awaited."""
        text = f"""
            const done = arguments[0];
            Promise.resolve({script}).then(value => done({{ value }}), error => done(String(error)));"""
        found = self.send("/execute/async", script=text, args=[])
        assert isinstance(found, dict), found  # a text is the page's error
        return found.get("value")

    evaluate_document = evaluate


@contextlib.contextmanager
def open_webkit() -> Iterator[WebKit]:
    """Start a virtual screen and WebKit on it, and stop both at the end."""
    assert XVFB is not None and WEBKIT_DRIVER is not None
    screen = [XVFB, "-displayfd", "1", "-screen", "0", "1280x800x24", "-nolisten", "tcp"]
    with contextlib.ExitStack() as processes:
        xvfb = subprocess.Popen(screen, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        processes.callback(stop, xvfb)
        assert xvfb.stdout is not None
        display = xvfb.stdout.readline().decode().strip()
        port = find_free_port()
        environment = os.environ | {"DISPLAY": f":{display}", "LIBGL_ALWAYS_SOFTWARE": "1"}
        driver = subprocess.Popen(
            [WEBKIT_DRIVER, f"--port={port}"], env=environment, stderr=subprocess.DEVNULL
        )
        processes.callback(stop, driver)
        wait_for_port(port)
        with contextlib.closing(WebKit(port)) as browser:
            yield browser


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and wait for it."""
    process.terminate()
    process.communicate()


def find_free_port() -> int:
    """Return the number of a port that no program uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for_port(port: int) -> None:
    """Wait until a program accepts connections at a port."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "the program did not start"
            time.sleep(0.1)
