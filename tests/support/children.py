"""Processes that tests start: the scripts of this folder, and what each finds in its environment."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent
COMPRESS_ONCE = FOLDER / "compress_once.py"
TERSELY_QUICKLY = FOLDER / "tersely_quickly.py"
TRAIN_INT8_ONCE = FOLDER / "train_int8_once.py"
TRAIN_WIDTHS_ONCE = FOLDER / "train_widths_once.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
"""Words after `python` for two processes of a script that meet each other on this machine."""


def environment(**more: str) -> dict[str, str]:
    """This process's, with the folder on the path and one thread."""
    paths = [str(FOLDER), os.environ.get("PYTHONPATH", "")]
    fixed = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MASTER_ADDR": "127.0.0.1"}
    return {**os.environ, **fixed, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}
