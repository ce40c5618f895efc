"""Open the weights in a folder with a live model as the mould: for classes that no folder can name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from ...errors import UserError
from ..families import find
from .shape import CONFIG_KEY, Shape
from .shrink import shrink, tensors, twin

WEIGHTS = "model.safetensors"


def reopen(template: nn.Module, folder: Path) -> Any:
    """A model like the template in eval mode: with its weights, or with those of the folder, as small as they are."""
    model = twin(template, torch.clone).eval()
    if not (folder / WEIGHTS).is_file():
        return model
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get(CONFIG_KEY) is not None:
        shrink(model, find(model), Shape.from_json(config[CONFIG_KEY], where=str(folder)))
    saved = load_file(folder / WEIGHTS)
    named = tensors(model)
    filled = {id(named[name]) for name in saved if name in named}  # a tensor that serves twice is saved once
    lacking = [name for name in model.state_dict() if id(named[name]) not in filled]
    if lacking:
        raise UserError(f"The weights lack '{lacking[0]}'.", where=str(folder))
    model.load_state_dict(saved, strict=False)
    return model
