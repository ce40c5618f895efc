"""From other frameworks' checkpoints to transformers folders, without torch: so far from PaddleNLP's."""

from __future__ import annotations

from .paddle import Converted, convert_paddle

__all__ = ["Converted", "convert_paddle"]
