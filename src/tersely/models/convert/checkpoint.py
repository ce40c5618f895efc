"""What a PaddleNLP folder says of its model: class, family, head, settings, and the sizes of its arrays."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError, existing
from ...tasks import facts_of, heads
from ...tasks.task import AnswersFor
from .pdparams import Arrays

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

CLS_TOKEN_ID = 101
"""PaddleNLP's default."""


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

    def bad_config(self, what: str, hint: str) -> UserError:
        """Say what the config should not say."""
        return UserError(what, where=str(self.config), hint=hint)

    def bad_weights(self, what: str, hint: str) -> UserError:
        """Say what is wrong with the arrays."""
        return UserError(what, where=str(self.weights), hint=hint)


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
    arguments = config.get("init_args") or []
    inner = [value for value in [*arguments, *config.values()] if _is_model(value)]
    encoder = inner[0] if inner else config
    if any(not isinstance(value, Mapping) for value in encoder.get("init_args") or []):
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


@dataclass(frozen=True)
class Sizes:
    """Numbers under the names of transformers' configs; `target` is the `model_type` to be written."""

    target: str
    prefix: str
    """What the encoder's arrays are called by: "ernie.", or nothing where it was saved alone."""
    before_2_5: bool
    """RoBERTa as PaddleNLP had it before 2.5: a pooler under every head."""
    vocab_size: int
    embedding_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    type_vocab_size: int
    task_type_vocab_size: int
    labels: int


def read_sizes(checkpoint: Checkpoint, arrays: Arrays) -> Sizes:
    """Measure the arrays; a UserError where the config says otherwise."""
    family, settings = checkpoint.family, checkpoint.settings
    prefix = f"{family}." if any(name.startswith(f"{family}.") for name in arrays) else ""

    def measure(name: str) -> tuple[int, int]:
        return _matrix(checkpoint, arrays, prefix + name)

    before_2_5 = family == "roberta" and _before_2_5(checkpoint, f"{prefix}pooler.dense.weight" in arrays)
    from_zero = before_2_5 and settings.get("cls_token_id", CLS_TOKEN_ID) != 0
    found = re.compile(re.escape(f"{prefix}encoder.layers.") + r"(\d+)\.")
    layers = {int(match[1]) for match in map(found.match, arrays) if match}
    vocabulary, embedding = measure("embeddings.word_embeddings.weight")
    projected = family == "electra" and f"{prefix}embeddings_project.weight" in arrays
    no_types = family == "ernie" and settings.get("type_vocab_size") == 0  # some of ERNIE's encoders
    sizes = Sizes(
        # Before 2.5 positions began with 0 but for byte-level BPE. That is BERT's build, and transformers' BERT.
        target="bert" if from_zero else family,
        prefix=prefix,
        before_2_5=before_2_5,
        vocab_size=vocabulary,
        embedding_size=embedding,
        hidden_size=measure("embeddings_project.weight")[1] if projected else embedding,
        intermediate_size=measure("encoder.layers.0.linear1.weight")[1],
        num_hidden_layers=max(layers) + 1,
        max_position_embeddings=measure("embeddings.position_embeddings.weight")[0],
        type_vocab_size=0 if no_types else measure("embeddings.token_type_embeddings.weight")[0],
        task_type_vocab_size=measure("embeddings.task_type_embeddings.weight")[0] if _tasks(checkpoint) else 0,
        labels=_labels(checkpoint, arrays),
    )
    _compare(checkpoint, sizes)
    return sizes


def _matrix(checkpoint: Checkpoint, arrays: Arrays, name: str) -> tuple[int, int]:
    """The shape [rows, columns] of a matrix."""
    if name not in arrays:
        what = f"The checkpoint lacks '{name}', which {checkpoint.title} needs."
        raise checkpoint.bad_weights(what, f"Check the class and the sizes in {checkpoint.config.name}.")
    shape = arrays[name].shape
    if len(shape) != 2:
        what = f"'{name}' must be a matrix. Got the shape {list(shape)}."
        raise checkpoint.bad_weights(what, "The arrays are not of one model: save it anew.")
    return shape[0], shape[1]


def _before_2_5(checkpoint: Checkpoint, pooler: bool) -> bool:
    """PaddleNLP 2.5 took the pooler from under RoBERTa's heads. RobertaModel has kept it: there the config tells."""
    settings = checkpoint.settings
    if checkpoint.title != "RobertaModel":
        return pooler
    if checkpoint.nested or settings.get("cls_token_id", CLS_TOKEN_ID) == 0:
        return checkpoint.nested
    version = re.match(r"(\d+)\.(\d+)", str(settings.get("paddlenlp_version")))
    if version is None:
        raise checkpoint.bad_config(
            "A RobertaModel's positions begin with 0 up to PaddleNLP 2.4 and behind the padding since, and the folder "
            "does not tell which PaddleNLP it is of.",
            'Write the version that trained it there, as in "paddlenlp_version": "2.6.1".',
        )
    return (int(version[1]), int(version[2])) < (2, 5)


def _tasks(checkpoint: Checkpoint) -> bool:
    return checkpoint.family == "ernie" and bool(checkpoint.settings.get("use_task_id", False))


def _labels(checkpoint: Checkpoint, arrays: Arrays) -> int:
    deep = "classifier.out_proj.weight"
    name = deep if deep in arrays else "classifier.weight"
    return 0 if checkpoint.head is None else _matrix(checkpoint, arrays, name)[1]


def _compare(checkpoint: Checkpoint, sizes: Sizes) -> None:
    said = dict(checkpoint.settings)
    if checkpoint.family != "electra":
        said.pop("embedding_size", None)
    if not _tasks(checkpoint):
        said.pop("task_type_vocab_size", None)  # it says how large a table would be
    for key, found in dataclasses.asdict(sizes).items():
        if key in said and said[key] != found and key not in ("target", "prefix", "before_2_5", "labels"):
            what = f"The config says that '{key}' is {said[key]!r}, the arrays say {found}."
            hint = f"The config and {checkpoint.weights.name} are not of one model, or one of them was changed."
            raise checkpoint.bad_config(what, hint)
