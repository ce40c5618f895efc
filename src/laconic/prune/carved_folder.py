"""A carved model as a folder: safetensors, its shape in config.json, and what transformers' Auto classes need."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_model
from torch import nn
from transformers import PreTrainedModel

from .. import __version__
from ..carve import locate
from ..carve.model import plain_class, write_code
from ..carve.shape import CONFIG_KEY
from ..engines.torch import check_finite, quiet_transformers
from ..errors import UserError, existing
from ..families import Family, find
from ..folder import NOTES, TOKENIZER_FILES, read_notes
from ..whole import whole_folder


def save_carved(
    model: Any,
    output_dir: str | Path,
    *,
    source: str | Path | None = None,
    family: Family | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a carved model as a folder that `laconic.load_model` and every command of Laconic opens like any other.

    `source`: the folder of the full model, whose tokenizer and task settings go along. The folder appears whole or not
    at all. `AutoModel….from_pretrained(output_dir, trust_remote_code=True)` opens it too where laconic is installed.

    >>> save_carved("width_mult_0.75", "out")
    Traceback (most recent call last):
    laconic.errors.UserError: A carved model must be a torch module to be saved as a folder. Got str.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"A carved model must be a torch module to be saved as a folder. Got {type(model).__name__}.")
    source = None if source is None else existing(source, "model folder")
    places = locate(model, family or find(model))
    shape, config = places.full.to_json(), getattr(model, "config", places.config)
    if getattr(config, CONFIG_KEY, None) != shape:
        what = f"The model's config does not say the shape that the model has ('{CONFIG_KEY}'): it was not carved."
        raise UserError(what, hint="Carve it first with laconic.carve.carve, or save it with save_pretrained.")
    check_finite(model)
    with whole_folder(output_dir, overwrite=overwrite) as scratch:
        if isinstance(model, PreTrainedModel):
            with quiet_transformers():
                model.save_pretrained(scratch)
            write_code(scratch, plain_class(type(model)))
        else:  # a module of the user's own around an encoder: only its owner can build it
            save_model(model, str(scratch / "model.safetensors"), metadata={"format": "pt"})
            (scratch / "config.json").write_text(json.dumps(config.to_dict(), indent=2) + "\n", encoding="utf-8")
        if source is not None:
            for name in TOKENIZER_FILES:
                if (source / name).is_file():
                    shutil.copyfile(source / name, scratch / name)
        files = sorted([NOTES, *(path.name for path in scratch.iterdir())])
        content = {"task": read_notes(source) if source else {}, "laconic_version": __version__, "files": files}
        (scratch / NOTES).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        for path in scratch.iterdir():
            path.chmod(path.stat().st_mode | 0o044)  # safetensors writes for the owner alone; servers run as others
    return Path(output_dir)
