"""`load_model`: a folder that transformers or Laconic saved, as a torch module again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .artifact import is_artifact
from .errors import UserError, existing, missing_package
from .torch_dynamic import is_dynamic


def load_model(folder: str | Path) -> Any:
    """Load a fine-tuned model, or one with INT8 layers from `write_dynamic`, as a torch module in eval mode.

    Nothing is downloaded, none of the folder's code runs and nothing is unpickled but tensors.

    >>> load_model("no/such/folder")
    Traceback (most recent call last):
    laconic.errors.UserError: no/such/folder: There is no such model folder. Check the path.
    """
    folder = existing(folder, "model folder")
    if is_artifact(folder):
        what = "This is an artifact: it holds graphs for engines, not a torch model."
        raise UserError(what, where=str(folder), hint="Open it with laconic.runtime.load.")
    try:
        from .engines.torch import load_module
        from .torch_dynamic.folder import read_dynamic
    except ImportError:
        raise missing_package("torch", "loading a torch model", "compress") from None
    return read_dynamic(folder) if is_dynamic(folder) else load_module(folder)
