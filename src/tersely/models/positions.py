"""How long a sequence a model can read, as its config says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHIFTED = {"roberta", "xlm-roberta", "camembert", "mpnet"}
"""Families whose positions start behind the padding id, so that the table holds two rows less than it seems."""


def longest(config: Mapping[str, Any]) -> int | None:
    """How many pieces the model's position table has room for; None where it has no table.

    >>> longest({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    512
    """
    positions = config.get("max_position_embeddings")
    if positions is None:
        return None
    shift = int(config.get("pad_token_id") or 0) + 1 if config["model_type"] in SHIFTED else 0
    return int(positions) - shift
