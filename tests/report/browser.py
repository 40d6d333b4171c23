"""Opens a page in headless Chromium, through its remote debugging pipe, and tells what a reader would see and what the page asked for.

    seen = browser.look_at("report.html")       # None where there is no Chromium
    seen.figures, seen.broken, seen.console, seen.requests

The browser has a profile of its own in a scratch folder and no network to ask: any request that is not for the file itself or data in it is told.
"""
import base64
import dataclasses
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = "there is no Chromium in PATH; on Debian: apt-get install chromium"
# What the page holds, by its own rendering: figures' ids, pictures that did not decode, and how wide its body and the widest thing in it are.
QUESTION = """JSON.stringify({
  title: document.title,
  figures: [...document.querySelectorAll('figure')].map(f => f.id),
  bare: [...document.querySelectorAll('figure')].filter(f => f.querySelector('img') && f.querySelector('figcaption').textContent.length < 40)
        .map(f => f.id),
  broken: [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.alt),
  small: [...document.images].filter(i => i.clientWidth < 300 || i.clientHeight < 60).map(i => i.alt),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth})"""


@dataclasses.dataclass
class Seen:
    """`bare`: figures whose caption says next to nothing; `console`: messages, errors and exceptions; `requests`: addresses other than the page's and
    data: ones."""

    title: str
    figures: list
    bare: list
    broken: list
    small: list
    overflow: int
    console: list
    requests: list


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


def look_at(page, seconds=60, screenshot=None):
    """`screenshot`: a PNG file to write the whole page to."""
    binary = find()
    if not binary:
        return None
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile, _Chromium(binary, profile, seconds) as chromium:
        return chromium.look_at(pathlib.Path(page).resolve().as_uri(), screenshot)


def complaints_about(page, wanted, seconds=120):
    """Complaints about a page in a browser, and a remark; `wanted`: the figures it must have."""
    seen = look_at(page, seconds)
    if seen is None:
        return [], f"skipped: {MISSING}"
    complaints = [f"without the figure {name}" for name in sorted(wanted - set(seen.figures))]
    complaints += [f"the picture of ‘{name}’ is not drawn" for name in seen.broken]
    complaints += [f"the picture of ‘{name}’ is tiny" for name in seen.small]
    complaints += [f"on the console: {line}" for line in seen.console] + [f"asked for {address}" for address in seen.requests]
    if seen.overflow > 0:
        complaints.append(f"{seen.overflow} pixels wider than the window")
    complaints += [f"the caption of {name} says nothing" for name in seen.bare]
    return complaints, f"{len(seen.figures)} figures"


class _Chromium:
    """A started browser; messages are JSON that end with a zero byte, to its descriptor 3 and from its descriptor 4."""

    def __init__(self, binary, profile, seconds):
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        self.until = time.monotonic() + seconds
        self.rest, self.last_id, self.session, self.events = b"", 0, None, []
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                 "--host-resolver-rules=MAP * ~NOTFOUND"]
        # The child finds its ends at 3 and 4, wherever they were.
        script = f'exec 3<&{to_read} 4>&{from_write}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", script, "chromium", binary, *flags, "about:blank"], pass_fds=(to_read, from_write),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)

    def look_at(self, address, screenshot):
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", width=1100, height=1400, deviceScaleFactor=1, mobile=False)
        self._ask("Page.navigate", url=address)
        self._until_event("Page.loadEventFired")
        found = json.loads(self._ask("Runtime.evaluate", expression=QUESTION)["result"]["value"])
        if screenshot:
            self._screenshot(screenshot)
        console, requests = [], []
        for event in self.events:
            what, of = event["method"], event["params"]
            if what == "Runtime.consoleAPICalled":
                console.append(f"console.{of['type']}: {' '.join(str(a.get('value')) for a in of['args'])}")
            elif what == "Runtime.exceptionThrown":
                console.append(f"exception: {of['exceptionDetails']['text']}")
            elif what == "Log.entryAdded":
                console.append(f"{of['entry']['level']}: {of['entry']['text']}")
            elif what == "Network.requestWillBeSent" and not of["request"]["url"].startswith(("data:", address)):
                requests.append(of["request"]["url"])
        return Seen(**found, console=console, requests=requests)

    def _screenshot(self, path):
        picture = self._ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(picture))

    def _ask(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self._next()
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"browser: {method}: {answer['error']['message']}")
                return answer["result"]

    def _until_event(self, name):
        while not any(event["method"] == name for event in self.events):
            self._next()

    def _next(self):
        """The next message; events are kept too."""
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], max(0, self.until - time.monotonic()))[0]:
                raise RuntimeError("browser: no answer in time")
            more = os.read(self.back, 1 << 20)
            if not more:
                raise RuntimeError(f"browser: it ended, with code {self.process.wait()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
