"""A hook of MkDocs: `folder/*` in the nav becomes the folder's pages that the nav names nowhere else.

So a new guide is on the site as soon as its file is there, and no page can be an orphan.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Fill in what the nav leaves open."""
    docs = Path(config["docs_dir"])
    named = {path for path in paths(config["nav"]) if not path.endswith("/*")}
    config["nav"] = filled(config["nav"], docs, named)
    return config


def paths(nav: Any) -> Iterator[str]:
    """All paths of a nav, in order.

    >>> list(paths([{"Home": "index.md"}, {"Guides": ["a.md", "guides/*"]}]))
    ['index.md', 'a.md', 'guides/*']
    """
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from paths(part)


def filled(nav: Any, docs: Path, named: set[str]) -> Any:
    """The nav with every `folder/*` replaced, the pages in the order of their titles."""
    if isinstance(nav, dict):
        return {title: filled(part, docs, named) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    found: list[Any] = []
    for part in nav:
        if isinstance(part, str) and part.endswith("/*"):
            pages = sorted((docs / part.removesuffix("/*")).glob("*.md"), key=title)
            found += [path for page in pages if (path := page.relative_to(docs).as_posix()) not in named]
        else:
            found.append(filled(part, docs, named))
    return found


def title(page: Path) -> str:
    """What a page calls itself."""
    return page.read_text(encoding="utf-8").lstrip().splitlines()[0].lstrip("# ")
