"""Manifests that were changed on purpose, their checksum made to fit: by another version of Tersely, or an attacker.

Written from docs/reference/artifact.md, not with the code that is tested.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def sealed(body: bytes) -> bytes:
    """A manifest of format version 2, given all its lines but the last two."""
    return body + b'  "manifest_sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def body(folder: Path) -> bytes:
    """All lines of the manifest but the last two."""
    return b"".join((folder / "tersely.json").read_bytes().splitlines(keepends=True)[:-2])


def content(folder: Path) -> dict[str, Any]:
    """What the manifest says, but for its checksum."""
    found = json.loads((folder / "tersely.json").read_text(encoding="utf-8"))
    found.pop("manifest_sha256", None)
    return dict(found)


def rewrite(folder: Path, **changes: Any) -> None:
    """Change entries of the manifest, and its checksum with them."""
    text = json.dumps({**content(folder), **changes}, indent=2)
    (folder / "tersely.json").write_bytes(sealed(text.removesuffix("\n}").encode() + b",\n"))


def write_version_1(folder: Path, **changes: Any) -> Path:
    """Write the manifest as Tersely did before it had a checksum."""
    text = json.dumps({**content(folder), "format_version": 1, **changes}, ensure_ascii=False, indent=2)
    (folder / "tersely.json").write_text(f"{text}\n", encoding="utf-8")
    return folder
