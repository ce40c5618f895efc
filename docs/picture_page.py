"""Take the pictures of the page anew: `python docs/picture_page.py ADDRESS WIDE PHONE`, before a server that runs.

WIDE and PHONE are the models for the two pictures, best such as have a partner of another precision. A quiet machine,
please: the pictures show milliseconds.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "images"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def picture(browser: Any, address: str, model: str, path: Path, width: int, scheme: str) -> None:
    """Ask the first example and write what the page shows."""
    tab = browser.new_page(viewport={"width": width, "height": 600}, color_scheme=scheme, reduced_motion="reduce")
    tab.set_default_timeout(120_000)
    tab.goto(f"{address}/#{model}")
    tab.locator(".example").first.click()
    tab.wait_for_selector("article")
    tab.wait_for_selector(".waiting", state="detached")
    tab.locator(".verdict button").click()
    tab.locator(".clock", has_text="median").first.wait_for()
    tab.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    tab.mouse.move(0, 0)
    tab.screenshot(path=path, full_page=True)
    tab.close()


def main(address: str, wide: str, phone: str) -> None:
    """Write `page.png` and `page_phone.png`."""
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=SWITCHES)
        picture(browser, address, wide, FOLDER / "page.png", 1000, "light")
        picture(browser, address, phone, FOLDER / "page_phone.png", 390, "dark")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
