"""The docs as a site: strictly built, nothing fetched from elsewhere, no dead link, no orphan."""

from __future__ import annotations

import doctest
import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's own news, not a warning about the docs
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_every_page_is_on_the_site(site):
    written = {page.relative_to(site).with_suffix("").as_posix() for page in site.rglob("*.html")}
    assert written - {"404"} == {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert not [url for url in loads.found if re.match(r"(https?:)?//", url)], page
        assert 'class="mermaid"' not in page.read_text(encoding="utf-8")  # would fetch a script to draw
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
def test_no_markdown_is_left_unread(site):
    """A list without a blank line before it, which GitHub takes, is a run of text here; so is a broken table."""
    for page in site.rglob("*.html"):
        article = re.search(r"<article.*?</article>", page.read_text(encoding="utf-8"), re.DOTALL)
        assert article, page
        text = re.sub(r"<pre>.*?</pre>|<code.*?</code>", "code", article[0], flags=re.DOTALL)
        left = re.search(r"\*\*|\]\(|`|^[-|] |\\\|.*$", html.unescape(re.sub(r"<[^>]+>", "", text)), re.MULTILINE)
        assert left is None, f"{page.name}: {left[0]}"


@pytest.mark.slow
def test_every_page_is_reached_from_the_first(site):
    reached, left = set(), [site / "index.html"]
    while left:
        page = left.pop()
        if page not in reached:
            reached.add(page)
            targets = re.findall(r'href="([^"#:?]+\.html)', page.read_text(encoding="utf-8"))
            left += [(page.parent / target).resolve() for target in targets]
    assert {page for page in site.rglob("*.html") if page.name != "404.html"} <= reached


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(prose(page)):
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


def test_links_are_found():
    found = [link for page in PAGES for link in LINK.findall(prose(page))]
    assert ("reference/options.md", "") in found
    assert any(anchor for _, anchor in found)


def test_a_folder_in_the_nav_stands_for_its_pages(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import fill_nav

    assert doctest.testmod(fill_nav).failed == 0
    pages = fill_nav.filled([{"Guides": ["how_to/compress.md", "how_to/*"]}], DOCS, {"how_to/compress.md"})[0]["Guides"]
    assert sorted(pages) == sorted(page.relative_to(DOCS).as_posix() for page in (DOCS / "how_to").glob("*.md"))
    assert pages[0] == "how_to/compress.md"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """What GitHub and the site both call a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


class Loads(HTMLParser):
    """What a browser fetches for a page by itself."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(named.get("src") or "")
        elif tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.found.append(named.get("href") or "")
