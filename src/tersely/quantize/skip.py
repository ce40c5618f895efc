"""`--skip_layers`: which layers and tables a user's patterns name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from ..errors import UserError


def skipped(patterns: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """The weights that patterns name; a pattern that names none is refused.

    >>> skipped(["*.query", "pooler*"], ["layer.0.query.weight", "layer.0.key.weight", "pooler.dense.weight"])
    ('layer.0.query.weight', 'pooler.dense.weight')
    """
    for pattern in patterns:
        if not any(fits(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=1) or list(names)[:1]  # not all of some hundred
            hint = f"Layers have names such as '{near[0]}'; patterns take * and ?." if near else "The model has none."
            raise UserError(
                f"No layer fits the pattern '{pattern}' (option '--skip_layers').", hint=hint, option="skip_layers"
            )
    return tuple(name for name in names if any(fits(name, pattern) for pattern in patterns))


def fits(name: str, pattern: str) -> bool:
    """Fit a pattern to a weight's name or to that of its layer, which has not the ending.

    >>> fits("pooler.dense.weight", "*.dense"), fits("pooler.dense.weight", "*.weight"), fits("pooler.dense", "dense")
    (True, True, False)
    """
    return fnmatchcase(name, pattern) or fnmatchcase(name.removesuffix(".weight"), pattern)
