"""A carved model as a folder: safetensors, its shape in config.json, and what transformers' Auto classes need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import UserError, existing
from ..models.carve import locate
from ..models.carve.shape import CONFIG_KEY
from ..models.families import Family, find
from ..training.model_folder import save_model


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


def carved_writer(source: Path) -> Callable[[Any, Path], Path]:
    """What writes carved models of a folder, one in the place of another."""
    return lambda model, place: save_carved(model, place, source=source, overwrite=True)
