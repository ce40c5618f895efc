"""What a PaddleNLP folder says of its model: class, family, head and settings, in one flat form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError, existing
from ...tasks import facts_of, heads
from ...tasks.task import AnswersFor

WEIGHTS = "model_state.pdparams"
CONFIGS = ("config.json", "model_config.json")
"""Where PaddleNLP looks for the config, in its order."""

FAMILIES = {"Ernie": "ernie", "Bert": "bert", "Roberta": "roberta", "Electra": "electra"}
ENCODERS = ("Model", "ForPretraining", "ForMaskedLM", "Discriminator")
"""Endings of classes of which the encoder is kept."""
NOT_OFFERED = {"ErnieM": "ERNIE-M", "ErnieGram": "ERNIE-Gram"}

BY_ONNX = (
    "What PaddleNLP exports as a graph can go on without transformers: paddle2onnx makes model.onnx of it, then: "
    "tersely compress --input_infer_model_path model.onnx"
)


@dataclass(frozen=True)
class Checkpoint:
    """A folder's config. `head` is None where the encoder alone is there, or kept."""

    folder: Path
    config: Path
    title: str
    """The class's name in PaddleNLP."""
    family: str
    head: str | None
    settings: Mapping[str, Any]
    nested: bool
    """Written with `init_class` and `init_args`, as PaddleNLP did before its configs had classes."""

    @property
    def answers_for(self) -> AnswersFor | None:
        """What the head answers for."""
        return None if self.head is None else facts_of(heads()[self.head]).answers_for

    @property
    def weights(self) -> Path:
        """The file with the arrays."""
        return self.folder / WEIGHTS


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Read the config of a folder and see that its files are there; the arrays are not opened."""
    folder = _folder(folder)
    place = next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    if place is None:
        hint = "Give the folder that model.save_pretrained wrote."
        raise UserError(f"The folder has neither {' nor '.join(CONFIGS)}.", where=str(folder), hint=hint)
    content = read_json(place)
    settings = {key: value for key, value in flatten(content, str(place)).items() if value is not None}
    title, family, head = _class(settings, str(place))
    return Checkpoint(folder, place, title, family, head, settings, nested="init_class" in content)


def flatten(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Bring both shapes of config into one: the encoder's settings beside the head's, the class in `architectures`.

    >>> flatten({"init_class": "BertForTokenClassification", "num_classes": 7,
    ...          "init_args": [{"init_class": "BertModel", "hidden_size": 64}]}, "model_config.json")
    {'hidden_size': 64, 'num_classes': 7, 'architectures': ['BertForTokenClassification']}
    """
    if "init_class" not in config:
        return dict(config)
    given = config.get("init_args") or []
    inner = [one for one in [*given, *config.values()] if _is_model(one)]
    encoder = inner[0] if inner else config
    if any(not isinstance(one, Mapping) for one in encoder.get("init_args") or []):
        what = f"The config gives {encoder['init_class']} arguments without names ('init_args')."
        raise UserError(what, where=where, hint='Write them there by name, as in "num_attention_heads": 12.')
    flat: dict[str, Any] = {}
    for part in (*inner, config):
        own = {key: value for key, value in part.items() if not _is_model(value)}
        flat |= {key: value for key, value in own.items() if key not in ("init_args", "init_class")}
    return {**flat, "architectures": [config["init_class"]]}


def _is_model(value: object) -> bool:
    return isinstance(value, Mapping) and "init_class" in value


def read_json(place: Path) -> dict[str, Any]:
    """Read an object from a file."""
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"The file is not JSON: {error}.", where=str(place), hint="Copy it anew.") from None
    if not isinstance(content, dict):
        raise UserError(f"The file must hold an object. Got {type(content).__name__}.", where=str(place))
    return content


def _folder(path: str | Path) -> Path:
    path = existing(path, "folder")
    graph = path.suffix in (".pdmodel", ".pdiparams") if path.is_file() else next(path.glob("*.pdmodel"), None)
    if graph and not (path / WEIGHTS).is_file():
        what = "This is a static graph (.pdmodel), which has no parameters by name."
        raise UserError(what, where=str(path), hint=f"Give the folder that it was exported from. {BY_ONNX}")
    if not path.is_dir():
        raise UserError(f"A folder is expected, with {WEIGHTS} in it. Got a file.", where=str(path))
    if not (path / WEIGHTS).is_file():
        hint = "Give the folder that model.save_pretrained wrote."
        raise UserError(f"The folder has no {WEIGHTS}.", where=str(path), hint=hint)
    return path


def _class(settings: Mapping[str, Any], where: str) -> tuple[str, str, str | None]:
    """Its name, its family, its head."""
    names = settings.get("architectures")
    name = names[0] if isinstance(names, list) and names else names
    if not isinstance(name, str):
        what = "The config does not say which class the model is ('architectures' or 'init_class')."
        raise UserError(what, where=where, hint='Add it, as in "architectures": ["ErnieForSequenceClassification"].')
    for start, title in NOT_OFFERED.items():
        if re.match(f"{start}(Model|For|$)", name):
            what = f"{title} ('{name}') is not offered: transformers has no class for it."
            raise UserError(what, where=where, hint=BY_ONNX)
    endings = {f"For{head}": head for head in heads()} | dict.fromkeys(ENCODERS)
    for start, family in FAMILIES.items():
        if name.removeprefix(start) in endings:
            return name, family, endings[name.removeprefix(start)]
    known = f"{', '.join(FAMILIES)}, each with {', '.join(endings)}"
    raise UserError(f"The class '{name}' is not known.", where=where, hint=f"Known: {known}. {BY_ONNX}")
