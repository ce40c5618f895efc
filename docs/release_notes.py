"""Print what CHANGELOG.md says of a version: `make release-notes`, or `python docs/release_notes.py [VERSION]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tersely import __version__

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
UNRELEASED = "Unreleased"
HEADING = re.compile(r"^## \[?([^\]\s]+).*$", re.MULTILINE)
"""A section's first line and the version that it is about: `## 0.2.0`, `## [0.2.0] - 2030-01-31`."""


def sections(text: str) -> dict[str, str]:
    """All sections of a changelog by version, each with its heading; empty ones are left out.

    >>> sections("# Changelog\\n\\n## Unreleased\\n\\n## 0.1.0\\n\\n- Begun.\\n")
    {'0.1.0': '## 0.1.0\\n\\n- Begun.\\n'}
    """
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    found = {heading[1]: text[heading.start() : end].rstrip() for heading, end in zip(headings, ends, strict=True)}
    return {version: section + "\n" for version, section in found.items() if "\n" in section}


def release_notes(text: str, version: str, current: str = __version__) -> str | None:
    """The section of a version; of the `current` one "Unreleased", as long as it has none. None where there is neither.

    >>> text = "## Unreleased\\n- New.\\n## 0.1.0\\n- Begun.\\n"
    >>> release_notes(text, "0.1.0", current="0.2.0"), release_notes(text, "0.2.0", current="0.2.0")
    ('## 0.1.0\\n- Begun.\\n', '## Unreleased\\n- New.\\n')
    """
    found = sections(text)
    return found.get(version, found.get(UNRELEASED) if version == current else None)


def main(words: Sequence[str]) -> int:
    """Print the notes of the version named, with or without the v of its tag, else of this one."""
    if len(words) > 1 or any(word.startswith("-") for word in words):
        sys.stderr.write("Usage: python docs/release_notes.py [VERSION]\n")
        return 2
    version = words[0].removeprefix("v") if words else __version__
    notes = release_notes(CHANGELOG.read_text(encoding="utf-8"), version)
    if notes is None:
        sys.stderr.write(f"{CHANGELOG.name} says nothing of version {version!r}; this is version {__version__}.\n")
        return 2
    sys.stdout.write(notes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
