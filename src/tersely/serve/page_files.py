"""The page's files, read once at the start: no path of a request ever reaches the disk."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""What a file of the page may be."""

HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Nothing but the server's own files: a script in a text could not run even if it were shown unescaped."""


@dataclass(frozen=True)
class PageFile:
    """What a path answers with."""

    content: bytes
    content_type: str


def page_files() -> dict[str, PageFile]:
    """Every file of the page by its path; `index.html` is at `/`."""
    found = {}
    for file in resources.files(__package__).joinpath("page").iterdir():
        kind = TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = PageFile(file.read_bytes(), kind)
    return found
