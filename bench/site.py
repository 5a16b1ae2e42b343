"""Every page of a site in a browser: faults by axe's rules, what does not fit, what the console complains of.

    python bench/site.py FOLDER [--served] [--only api/] [--looks 1280-light,390-dark,1280-dark,390-light]

FOLDER is a site that scripts/docs.py or `sfumato publish` made, or any other folder of pages, which are opened as
files, or through a server as a published site has to be. Bar: nothing is printed but the last line of every look.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.browser import Browser, browser
from support.served import served

AT_ONCE = 60  # pages of one browser: it keeps something of each


def wrong(page: str, window: Browser) -> dict[str, object]:
    """What is wrong with a page; the console is asked first, for axe opens style sheets of its own accord."""
    window.forget()
    window.go(page)
    window.until(lambda: window.run("return document.readyState === 'complete'"))
    time.sleep(0.05)  # for what scripts do once the page is there
    said = [m["message"] for m in window.driver.get_log("browser")]
    found = {"console": said, "axe": window.faults(), "beyond": window.beyond(), "wider": max(window.overflow(), 0)}
    return {k: v for k, v in found.items() if v}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--served", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--looks", default="1280-light,390-dark,1280-dark,390-light")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    pages = [p for p in sorted(folder.rglob("*.html")) if chosen.only in str(p.relative_to(folder))]
    # those that lead on at once, and the one that a server gives in place of another, are not looked at by themselves
    pages = [p for p in pages if p.name != "404.html" and 'http-equiv="refresh"' not in p.read_text(encoding="utf-8")]
    with served(folder) as (server, _):
        start = server if chosen.served else folder.as_uri()
        for look in chosen.looks.split(","):
            width, scheme = look.split("-")
            bad = 0
            for first in range(0, len(pages), AT_ONCE):
                with browser() as window:
                    window.look(int(width), scheme)
                    for page in pages[first : first + AT_ONCE]:
                        name = page.relative_to(folder).as_posix()
                        found = wrong(f"{start}/{name}", window)
                        bad += bool(found)
                        if found:
                            print(name, look, found, flush=True)
            print(f"{look}: {len(pages)} pages, {bad} with a fault", flush=True)


if __name__ == "__main__":
    main()
