"""The class of a carved model: transformers' own, that makes itself smaller by the shape in its config."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import nn

from ...errors import UserError
from ..families import find
from .places import tensors
from .shape import CONFIG_KEY, Shape
from .shrink import shrink, twin

CODE = "modeling_tersely.py"
WEIGHTS = "model.safetensors"


def model_class(kind: Any, config: Any) -> Any:
    """What to call `from_pretrained` on: the class (or Auto class) given, or for a carved model's config one of ours.

    Nothing of a model folder's own code is looked at.
    """
    if getattr(config, CONFIG_KEY, None) is None:
        return kind
    return carved_class(kind._model_mapping[type(config)] if hasattr(kind, "_model_mapping") else kind)


@cache
def carved_class(kind: type) -> Any:
    """A subclass of a transformers class, of the same name, that opens models that were carved and others alike.

    >>> carved_class(transformers.BertModel).__mro__[1].__name__
    'BertModel'
    """
    contents = {
        "__init__": _init,
        "__doc__": kind.__doc__,
        "__module__": __name__,
        "save_pretrained": _save_pretrained,
        "register_for_auto_class": classmethod(lambda cls, auto_class="AutoModel": None),
    }
    return type(kind.__name__, (kind,), contents)


def plain_class(kind: type) -> Any:
    """What `carved_class` was called with, of one of its classes or a subclass; another class itself."""
    own = next((base for base in kind.__mro__ if base.__dict__.get("__init__") is _init), None)
    return kind if own is None else own.__mro__[1]


def __getattr__(name: str) -> Any:
    """Carved classes by the name of transformers' class, for generated code and for pickle."""
    kind = None if name.startswith("_") else getattr(transformers, name, None)
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return carved_class(kind)


def write_code(folder: str | Path, kind: type) -> None:
    """Put into a saved model's folder what `AutoModel….from_pretrained(…, trust_remote_code=True)` needs.

    A class of the user's own that cannot be imported by name, or whose name says no task, goes without.
    """
    auto, module = _auto_name(kind.__name__), _home(kind)
    if auto is None or module is None:
        return
    lines = [
        '"""Opens this pruned model with transformers\' Auto classes (trust_remote_code=True). Needs tersely."""',
        "",
        f"from tersely.models.carve.model import {kind.__name__}",
    ]
    if not module.startswith("transformers."):
        lines[2:] = [
            "from tersely.models.carve.model import carved_class",
            f"from {module} import {kind.__name__} as _Full",
            "",
            f"{kind.__name__} = carved_class(_Full)",
        ]
    (Path(folder) / CODE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    place = Path(folder) / "config.json"
    config = json.loads(place.read_text(encoding="utf-8"))
    config["auto_map"] = {auto: f"{Path(CODE).stem}.{kind.__name__}"}
    place.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def reopen(template: nn.Module, folder: Path) -> Any:
    """A model like the template in eval mode: with its weights, or with those of the folder, as small as they are.

    For classes that no folder can name: the live model is the mould.
    """
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


def _init(self: Any, config: Any, *inputs: Any, **settings: Any) -> None:
    parent = plain_class(type(self))
    parent.__init__(self, config, *inputs, **settings)
    content = getattr(config, CONFIG_KEY, None)
    # transformers may keep a class from a folder's code for all models of its kind: without a shape, all stays.
    if content is not None:
        shape = Shape.from_json(content, where=str(getattr(config, "_name_or_path", "") or "config.json"))
        _check_depth(config, shape)
        shrink(self, find(config), shape)


def _save_pretrained(self: Any, save_directory: Any, *inputs: Any, **settings: Any) -> None:
    parent = plain_class(type(self))
    parent.save_pretrained(self, save_directory, *inputs, **settings)
    if getattr(self.config, CONFIG_KEY, None) is not None and (Path(save_directory) / "config.json").is_file():
        write_code(save_directory, parent)


def _check_depth(config: Any, shape: Shape) -> None:
    layers = getattr(config, "num_hidden_layers", None)
    if layers is not None and shape.layers != tuple(range(layers)):
        what = f"The shape names the layers {list(shape.layers)}; the config says that there are {layers}."
        raise UserError(what, hint=f"'num_hidden_layers' and '{CONFIG_KEY}' in config.json belong together.")


def _auto_name(name: str) -> str | None:
    ending = re.search(r"For[A-Z]\w*$", name)
    auto = f"AutoModel{ending.group()}" if ending else "AutoModel" if name.endswith("Model") else ""
    return auto if hasattr(transformers, auto) else None


def _home(kind: type) -> str | None:
    """The module that a class can be imported from, or None."""
    if kind.__module__.startswith("transformers."):
        return kind.__module__ if getattr(transformers, kind.__name__, None) is kind else None
    return None if kind.__module__ == "__main__" or "." in kind.__qualname__ else kind.__module__
