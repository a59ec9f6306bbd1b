"""Opens every page of the built site in Chromium, at the width of a screen and of a phone, and measures it.

    python scripts/site/check_pages.py [build/site] [--shots FOLDER]

A page must not be wider than its window, a name must not be broken within its letters, and nothing may be
cut off where it cannot be scrolled. ``make docs`` runs this. It needs Chromium and its driver (Debian: ``apt
install chromium chromium-driver``); where they are missing, it says that nothing was checked.
"""

import argparse
import base64
import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTHS = (1280, 390)
HEIGHT = 900
ROOT = Path(__file__).resolve().parents[2]
# Seconds until a driver that was started answers.
PATIENCE_S = 20
# Pages that screenshots are taken of, and the themes.
SHOWN = (
    *("index.html", "reference/pyg-layers.html", "results.html", "examples.html", "reference/reasons.html"),
    *("patching/served.html", "explanation/architecture.html", "will-it-help.html"),
)
THEMES = ("light", "dark")
# Runs in a page; returns how much wider than its window it is, which words are broken in two, which
# elements are cut off, and which tables scroll.
MEASURE = """
const broken = [], cut = [], page = document.querySelector('article') || document.body;
const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
const range = document.createRange(), window_width = document.documentElement.clientWidth;
for (let node; (node = walker.nextNode());) {
  if (!node.parentElement.checkVisibility() || node.parentElement.closest('svg, script, style')) continue;
  range.selectNodeContents(node);
  if (range.getClientRects().length < 2) continue;
  for (const word of node.data.matchAll(/[A-Za-z0-9_]{2,}/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0]);
  }
}
const scrolls = style => ['auto', 'scroll'].includes(style.overflowX);
for (const element of page.querySelectorAll('pre, table, img, p, li, h1, h2, h3, code')) {
  const box = element.getBoundingClientRect();
  if (!box.width || box.right <= window_width + 1) continue;
  let above = element;
  while (above && !scrolls(getComputedStyle(above))) above = above.parentElement;
  if (!above || above === document.documentElement) cut.push(element.tagName.toLowerCase() + ': '
    + element.textContent.trim().slice(0, 40));
}
const tables = [...page.querySelectorAll('table')].filter(table => {
  let above = table.parentElement;
  while (above && !scrolls(getComputedStyle(above))) above = above.parentElement;
  return above && table.getBoundingClientRect().width > above.clientWidth + 1;
});
return {wider: document.documentElement.scrollWidth - window_width,
        broken, cut, scrolling: tables.map(table => table.textContent.trim().slice(0, 40))};
"""


class Browser:
    """A session of chromedriver, by the WebDriver protocol."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/session"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
        self._address += "/" + self._post("", {"capabilities": {"alwaysMatch": options}})["sessionId"]

    def _post(self, command: str, content: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._address + command, json.dumps(content).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Runs a command of Chromium's own protocol."""
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def window(self, width: int, theme: str = "light") -> None:
        """Sets the width of the window, in pixels, and the theme that the system prefers."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=HEIGHT, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        preferred = {"name": "prefers-color-scheme", "value": theme}
        self.devtools("Emulation.setEmulatedMedia", features=[preferred])

    def open(self, page: Path) -> None:
        """Opens a page and waits until it has been loaded."""
        self._post("/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """Runs the body of a function in JavaScript, and returns what it returns."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def screenshot(self, path: Path) -> None:
        """Writes what the window shows."""
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """Ends the browser."""
        request = urllib.request.Request(self._address, method="DELETE")
        urllib.request.urlopen(request, timeout=30).close()


@contextlib.contextmanager
def browser(driver: str) -> Iterator[Browser]:
    """Starts chromedriver and a browser, and ends both."""
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line, end = "", time.monotonic() + PATIENCE_S
        while "started successfully on port" not in line:
            line = process.stdout.readline()
            if not line or time.monotonic() > end:
                raise SystemExit(f"{driver} did not start.")
        session = Browser(int(line.rstrip(".\n").rpartition(" ")[2]))
        try:
            yield session
        finally:
            session.close()
    finally:
        process.terminate()
        process.wait()


def faults(found: dict[str, Any], width: int) -> list[str]:
    """What is wrong with a page, in words. On a phone, tables may scroll in their box."""
    wider = [f"{found['wider']} pixels wider than its window"] if found["wider"] > 0 else []
    broken = [f"broken: {word}" for word in dict.fromkeys(found["broken"])]
    cut = [f"cut off: {text}" for text in dict.fromkeys(found["cut"])]
    tables = [f"a table does not fit: {text}" for text in found["scrolling"] if width >= WIDTHS[0]]
    return [*wider, *broken, *cut, *tables]


def check(session: Browser, site: Path) -> int:
    """Measures every page, prints what is wrong, and returns the number of faults."""
    count = 0
    pages = sorted(page for page in site.rglob("*.html") if "overrides" not in page.parts)
    for width in WIDTHS:
        session.window(width)
        wide = total = 0
        for page in pages:
            session.open(page)
            found = session.run(MEASURE)
            wide += len(found["scrolling"])
            for fault in faults(found, width):
                print(f"{page.relative_to(site)} at {width}: {fault}")
                total += 1
        print(f"{len(pages)} pages at {width} pixels: {total} faults; {wide} tables scroll in their box")
        count += total
    return count


def show(session: Browser, site: Path, folder: Path) -> None:
    """Takes screenshots of some pages, at both widths and in both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for theme in THEMES:
            session.window(width, theme)
            for page in SHOWN:
                session.open(site / page)
                session.run("localStorage.clear()")  # the theme of the last page
                session.open(site / page)
                session.screenshot(
                    folder / f"{page.replace('/', '-').removesuffix('.html')}-{width}-{theme}.png"
                )


def main() -> None:
    """Checks the site; SystemExit if it is missing or has faults."""
    parser = argparse.ArgumentParser(description="Measures the pages of the built site.")
    parser.add_argument("site", type=Path, nargs="?", default=ROOT / "build" / "site")
    parser.add_argument("--shots", type=Path, help="a folder for screenshots")
    options = parser.parse_args()
    if not (options.site / "index.html").exists():
        raise SystemExit(f"{options.site} has no index.html: build it with make docs.")
    driver = shutil.which("chromedriver")
    if driver is None:
        print("The pages were not checked in a browser: chromedriver is missing (Debian: apt install "
              "chromium chromium-driver).", file=sys.stderr)  # fmt: skip
        return
    with browser(driver) as session:
        count = check(session, options.site)
        if options.shots:
            show(session, options.site, options.shots)
    if count:
        raise SystemExit(f"{count} faults")


if __name__ == "__main__":
    main()
