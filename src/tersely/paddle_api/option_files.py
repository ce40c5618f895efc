"""Files of options that scripts have beside YAML: `.args` with words, JSON with values."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, existing


def with_args_files(words: Sequence[str], look: bool, name: str | None, flag: str | None) -> list[str]:
    """Words of `.args` files in front of what was typed: the script's own file, or those that are named."""
    own = Path(sys.argv[0]).with_suffix(".args") if look and sys.argv and sys.argv[0] else None
    files = [Path(name)] if name else [own] if own is not None and own.is_file() else []
    rest = list(words)
    if flag:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument(flag, action="append", dest="files")
        seen, rest = parser.parse_known_args(rest)
        files += [Path(one) for one in seen.files or ()]
    said = [word for file in files for word in existing(file, "file of options").read_text(encoding="utf-8").split()]
    return [*said, *rest]


def read_json(path: str | Path) -> dict[str, Any]:
    """The values of a JSON file."""
    try:
        content = json.loads(existing(path, "file of options").read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"The file is not JSON: {error.msg}.", where=f"{path}:{error.lineno}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"The file is not UTF-8 (byte {error.start}).", where=str(path)) from None
    if not isinstance(content, dict):
        raise UserError("The file must hold one JSON object.", where=str(path))
    return content
