"""A headless Chromium of the machine's own, or the one line that says why there is none."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# in a container there are no namespaces to make a sandbox of, no graphics, and little shared memory
_QUIET = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
AXE = Path(__file__).parents[1] / "fixtures" / "axe" / "axe.min.js"
_BEYOND = """
const edge = document.documentElement.clientWidth + 1;
const end = (e) => e.getBoundingClientRect().right;
const held = (e) => e && (getComputedStyle(e).overflowX !== "visible" && end(e) <= edge || held(e.parentElement));
return [...document.querySelectorAll("article *")]
  .filter((e) => e.getBoundingClientRect().width && end(e) > edge && !e.closest(".katex-mathml"))
  .filter((e) => !held(e.parentElement))
  .map((e) => e.outerHTML.slice(0, 80)).slice(0, 3);
"""


def missing() -> str | None:
    """Why there is no browser, or None."""
    if find_spec("selenium") is None:
        return "selenium is not installed (the extra 'test')"
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(lacking)} are not installed (Debian: chromium, chromium-driver)" if lacking else None


class Browser:
    """A window, with what a person does in it: look for a control by its label, type, click, wait for a text."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._kept: list[dict[str, Any]] = []
        self._width = 1280

    def go(self, address: str) -> None:
        self.driver.get(address)

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements("css selector", css)

    def text(self, css: str) -> str:
        return self.find(css).text

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def ready(self) -> None:
        """Wait until the page has what it shows: before that its script has not looked at its controls."""
        self.until(lambda: not self.all("main[aria-busy]"))

    def click(self, css: str) -> None:
        """Press something, once it lies still and bare: a page that is made anew moves what was scrolled to."""
        self.ready()

        def pressed() -> bool:
            place = self.find(css)
            self.run("arguments[0].scrollIntoView({block: 'center'})", place)
            place.click()
            return True

        self.until(pressed)

    def type(self, css: str, text: str) -> None:
        self.ready()
        place = self.find(css)
        place.clear()
        place.send_keys(text)

    def choose(self, css: str, text: str) -> None:
        from selenium.webdriver.support.select import Select

        self.ready()
        Select(self.find(css)).select_by_visible_text(text)

    def until(self, what: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait for something to be so; while the page is made anew it is not."""
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while True:
            try:
                found = what()
            except WebDriverException:
                found = None
            if found:
                return found
            assert time.monotonic() < end, f"waited in vain; the page says {self.said()!r}"
            time.sleep(0.03)

    def said(self) -> str:
        """What the page complains of, or tells."""
        return " ".join(e.text for e in self.all("#problem, #status, #job, #trouble"))

    def saved(self) -> None:
        """Wait until what was typed is in the spec."""
        self.until(lambda: self.text("#status") != "Saving…")

    def look(self, width: int, scheme: str, height: int = 900) -> None:
        """Of this width, light or dark."""
        self._width = width
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": "", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )

    def paper(self, width: int) -> None:
        """As it is printed, on a sheet with so much between its margins."""
        self.look(width, "light")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})

    def faults(self) -> list[str]:
        """What the rules of axe find wrong with the page as it is."""
        if not self.run("return Boolean(window.axe)"):
            self.run(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations.map("
            "(v) => v.id + ': ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(' | '))), "
            "(e) => done([String(e)]))"
        )
        assert isinstance(found, list)
        return found

    def overflow(self) -> int:
        """Pixels that the page is wider than its window; a phone's own width grows with what it shows."""
        return int(self.run("return document.documentElement.scrollWidth")) - self._width

    def beyond(self) -> list[str]:
        """What ends to the right of the window, within nothing that scrolls or cuts it off."""
        found = self.run(_BEYOND)
        assert isinstance(found, list)
        return found

    def forget(self) -> None:
        """Leave the page there is, with the windows it opened and what earlier ones asked for and complained of.

        A page behind another window is hidden: nothing of it comes into view, and what waits for that never happens.
        """
        first, *opened = self.driver.window_handles
        for window in opened:
            self.driver.switch_to.window(window)
            self.driver.close()
        self.driver.switch_to.window(first)
        self.go("about:blank")
        self.driver.get_log("browser")
        self._events().clear()

    def requests(self) -> list[str]:
        """Addresses that pages have asked for."""
        sent = (e for e in self._events() if e["method"] == "Network.requestWillBeSent")
        return [e["params"]["request"]["url"] for e in sent]

    def troubles(self) -> list[Any]:
        """Whatever the console has said since it was asked last, and what could not be loaded."""
        failed = (e for e in self._events() if e["method"] == "Network.loadingFailed")
        return [*self.driver.get_log("browser"), *failed]

    def _events(self) -> list[dict[str, Any]]:
        self._kept += [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return self._kept

    def errors(self) -> list[str]:
        """What the console has said since it was asked last, but for refusals, which a page tells by itself."""
        found = [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]
        return [m for m in found if "/api/" not in m or "status of 4" not in m]

    def shot(self, name: str) -> None:
        """A picture of the whole page, where somebody wants to look at them."""
        folder = os.environ.get("SFUMATO_TESTS_PICTURES")
        if folder is None:
            return
        data = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(data["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of this process's tests."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (*_QUIET, "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
