"""A second process that is slower than the first where both write into one checkpoint, as on a busy machine."""

from __future__ import annotations

import os
import time
from typing import Any

from transformers import Trainer


def slow_down_others(seconds: float = 1.0) -> None:
    """On all but the first process, wait before each part of a checkpoint is written."""
    if os.environ.get("RANK", "0") == "0":
        return
    write = Trainer._save_rng_state

    def late(self: Any, *inputs: Any) -> None:
        time.sleep(seconds)
        write(self, *inputs)

    Trainer._save_rng_state = late
