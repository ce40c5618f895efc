"""A model, carved or not, as a folder that every command of Tersely opens: weights, config, tokenizer, the task."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn
from transformers import PreTrainedModel

from .. import __version__
from ..atomic import atomic_folder
from ..errors import UserError, existing
from ..models.carve import locate
from ..models.carve.model import plain_class, write_code
from ..models.carve.shape import CONFIG_KEY
from ..models.families import Family, find
from ..models.folder import NOTES, TOKENIZER_FILES, read_notes
from ..models.torch_folder import check_finite, quiet_transformers


def save_model(
    model: Any,
    output_dir: str | Path,
    config: Mapping[str, Any] | None = None,
    *,
    source: str | Path | None = None,
    overwrite: bool = False,
    beside: Callable[[Path], None] | None = None,
) -> Path:
    """Write a model, carved or not; the folder appears whole or not at all.

    `config`: what config.json holds for a module that is none of transformers'. `source`: the folder whose
    tokenizer and task settings go along. `beside` writes further files into the folder.
    """
    check_finite(model)
    with atomic_folder(output_dir, overwrite=overwrite) as scratch:
        if isinstance(model, PreTrainedModel):
            with quiet_transformers():
                model.save_pretrained(scratch)
            if getattr(model.config, CONFIG_KEY, None) is not None:
                write_code(scratch, plain_class(type(model)))
        else:  # a module of the user's own around an encoder: only its owner can build it
            safetensors.torch.save_model(model, str(scratch / "model.safetensors"), metadata={"format": "pt"})
            (scratch / "config.json").write_text(json.dumps(config or {}, indent=2) + "\n", encoding="utf-8")
        if source is not None:
            for name in TOKENIZER_FILES:
                if (Path(source) / name).is_file():
                    shutil.copyfile(Path(source) / name, scratch / name)
        if beside is not None:
            beside(scratch)
        files = sorted([NOTES, *(path.name for path in scratch.iterdir())])
        content = {"task": read_notes(source) if source else {}, "tersely_version": __version__, "files": files}
        write_notes(scratch, content)
    return Path(output_dir)


def save_carved(
    model: Any,
    output_dir: str | Path,
    *,
    source: str | Path | None = None,
    family: Family | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a carved model as a folder that `tersely.load_model` and every command of Tersely opens like any other.

    `source`: the folder of the full model, whose tokenizer and task settings go along. The folder appears whole or not
    at all. `AutoModel….from_pretrained(output_dir, trust_remote_code=True)` opens it too where tersely is installed.

    >>> save_carved("width_mult_0.75", "out")
    Traceback (most recent call last):
    tersely.errors.UserError: A carved model must be a torch module to be saved as a folder. Got str.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"A carved model must be a torch module to be saved as a folder. Got {type(model).__name__}.")
    source = None if source is None else existing(source, "model folder")
    places = locate(model, family or find(model))
    shape, config = places.full.to_json(), getattr(model, "config", places.config)
    if getattr(config, CONFIG_KEY, None) != shape:
        what = f"The model's config does not say the shape that the model has ('{CONFIG_KEY}'): it was not carved."
        raise UserError(what, hint="Carve it first with tersely.models.carve.carve, or save it with save_pretrained.")
    return save_model(model, output_dir, config.to_dict(), source=source, overwrite=overwrite)


def write_notes(scratch: Path, content: Mapping[str, Any]) -> None:
    """Write what Tersely notes of a folder, its last file, and let everybody read the folder."""
    (scratch / NOTES).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    for path in scratch.iterdir():
        path.chmod(path.stat().st_mode | 0o044)  # safetensors writes for the owner alone; servers run as others
