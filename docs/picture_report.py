"""Take the pictures of a report anew: `python docs/picture_report.py REPORT.html`, of a run on a quiet machine.

`report.png` holds the answer and the plot, `report_answer.png` the answer alone, for the README's first screen.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from picture_page import FOLDER, SWITCHES
from playwright.sync_api import sync_playwright

WIDTH = 1160


def main(report: str) -> None:
    """Write both; each ends where a part of the page does."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=SWITCHES)
        tab = browser.new_page(viewport={"width": WIDTH, "height": 1400}, color_scheme="light", reduced_motion="reduce")
        tab.goto(Path(report).resolve().as_uri())
        for name, last in (("report.png", "figure"), ("report_answer.png", ".tiles")):
            bounds = tab.locator(last).first.bounding_box()
            height = bounds["y"] + bounds["height"] + 16
            tab.screenshot(path=FOLDER / name, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
