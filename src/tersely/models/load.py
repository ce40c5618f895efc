"""`load_model`: a folder that transformers or Tersely saved, as a torch module again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..artifact import is_artifact
from ..errors import UserError, existing, missing_package

MANIFEST = "tersely_quantized.json"
"""What a model with INT8 layers, written by `write_dynamic`, says of itself."""


def load_model(folder: str | Path, model_class: Any = None) -> Any:
    """Load a fine-tuned model, a pruned one, or one with INT8 layers from `write_dynamic`: a module in eval mode.

    Nothing is downloaded, none of the folder's code runs and nothing is unpickled but tensors. `model_class`: the class
    of a model of your own (a `PreTrainedModel`), which transformers does not have.

    >>> load_model("no/such/folder")
    Traceback (most recent call last):
    tersely.errors.UserError: no/such/folder: There is no such model folder. Check the path.
    """
    folder = existing(folder, "model folder")
    if is_artifact(folder):
        what = "This is an artifact: it holds graphs for engines, not a torch model."
        raise UserError(what, where=str(folder), hint="Open it with tersely.runtime.load.")
    try:
        from .torch_dynamic import read_dynamic
        from .torch_folder import load_module
    except ImportError:
        raise missing_package("torch", "loading a torch model", "compress") from None
    if not (folder / MANIFEST).is_file():
        return load_module(folder, kind=model_class)
    if model_class is not None:
        raise UserError("A model with INT8 layers names its class itself.", where=str(folder), hint="Leave it out.")
    return read_dynamic(folder)
