"""A transformers folder: its config, its task, its tokenizer, checked. (The weights: `engines.torch`.)"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import yaml

from ..artifact import Provenance
from ..errors import UserError, existing, missing_package, wrong_option
from ..tasks import TASKS, Encoder, Task, facts_of, from_json, kinds, settings_of, task_of_class
from ..tasks.options import TaskOptions
from .families import longest

NOTES = "tersely_task.json"
"""What a model was trained and scored with; the defaults of whatever is done with it later."""

WEIGHTS = ("*.safetensors", "*.bin")

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
SNAPSHOT = re.compile(r"/models--([^/]+--[^/]+)/snapshots/[^/]+$")
"""A folder of the Hub's own cache, which names the model."""
FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\n---\s", re.DOTALL)

TOKENIZER_FILES = (
    "added_tokens.json", "merges.txt", "sentencepiece.bpe.model", "special_tokens_map.json", "spiece.model",
    "spm.model", "tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt",
)  # fmt: skip


@dataclass(frozen=True)
class ModelFolder:
    """What is known of a model before its weights are read.

    `template`: a live model of the user's, whose class no folder names. The folder then holds its config and tokenizer,
    and weights only where they are other than the template's own. `graph`: a bare ONNX file in the weights' place.
    """

    path: Path
    config: Mapping[str, Any]
    task: Task
    encoder: Encoder
    template: Any = field(default=None, repr=False)
    provenance: Provenance = field(default_factory=Provenance)
    graph: Path | None = None

    @property
    def name(self) -> str:
        """What the model is called; a graph by its folder where it has the usual name: NAME/onnx/model.onnx."""
        if self.graph is None:
            return self.path.resolve().name
        folder = self.graph.resolve().parent
        above = folder.parent if folder.name == "onnx" else folder
        return (above.name if self.graph.stem == "model" else "") or self.graph.stem

    @property
    def size(self) -> int:
        """Bytes of its weights on disk, about what its FP32 graph takes."""
        if self.template is not None:
            return int(sum(4 * weight.numel() for weight in self.template.parameters()))
        files = [self.graph] if self.graph else [file for kind in WEIGHTS for file in self.path.glob(kind)]
        return sum(file.stat().st_size for file in files)

    def load(self) -> Any:
        """The torch model, in FP32 and eval mode; one of its own at each call."""
        from .carve.model import reopen
        from .torch_folder import load_module

        return load_module(self.path) if self.template is None else reopen(self.template, self.path)

    def at(self, path: Path) -> ModelFolder:
        """The same task for another folder: that of a smaller model that was made of this one."""
        config = read_config(path)
        encoder = read_encoder(path, config) if self.template is None else self.encoder
        return replace(self, path=path, config=config, encoder=encoder, graph=None)


def open_folder(path: str | Path, options: TaskOptions | None = None) -> ModelFolder:
    """Read config, task and tokenizer of a fine-tuned model."""
    config = read_config(path)
    task = read_task(path, config, options or TaskOptions())
    encoder = read_encoder(path, config)
    return ModelFolder(Path(path), config, task, encoder, provenance=read_provenance(path, config))


def read_config(path: str | Path) -> dict[str, Any]:
    """Read `config.json`."""
    folder = existing(path, "model folder")
    place = folder / "config.json"
    if not place.is_file():
        raise UserError("The model folder has no config.json.", where=str(folder), hint="Give a transformers folder.")
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"The config is not JSON: {error}.", where=str(place)) from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise UserError("The config does not say which 'model_type' it is.", where=str(place))
    return config


def read_task(path: str | Path, config: Mapping[str, Any], options: TaskOptions) -> Task:
    """Find the task from the head's class; settings from the options, else the folder's notes, else the defaults."""
    found = (task_of_class(name) for name in config.get("architectures") or ())
    head = next((task for task in found if task is not None), None)
    if head is None:
        what = f"The model ({', '.join(config.get('architectures') or ['no architecture'])}) has no head for a task."
        raise UserError(what, where=str(path), hint="Fine-tune it first with: tersely finetune")
    settings: dict[str, Any] = {}
    if "labels" in settings_of(head):
        settings["labels"] = _labels(path, config)
    if "problem" in settings_of(head) and config.get("problem_type"):
        settings["problem"] = config["problem_type"]
    settings = facts_of(head).defaults(settings)
    notes = read_notes(path)
    if notes.get("name") == head:
        settings |= {name: value for name, value in notes.items() if name not in ("name", "labels", "problem")}
    return make_task(head, settings, options, config, where=str(path))


def make_task(
    name: str, settings: Mapping[str, Any], options: TaskOptions, config: Mapping[str, Any], *, where: str | None = None
) -> Task:
    """Put a task together from settings and options; an option that the task does not have is refused."""
    for option in options.chosen():
        if option not in settings_of(name):
            raise wrong_option(option, f"has no effect on {name}.", hint="Leave it out.")
    settings = dict(settings)
    head, problem = kinds()[options.task] if options.task else (name, None)
    if head != name:
        what = f"The model's head is for {name}, not for {options.task} (option '--task')."
        raise UserError(what, where=where, option="task")
    if problem and problem != settings.get("problem"):
        settings["problem"] = problem
        settings.pop("metric", None)  # that of another kind of answer
    settings = facts_of(name).defaults(settings | options.chosen())
    limit = longest(config)
    default = int(cast(Any, TASKS[name]).max_seq_length)
    settings.setdefault("max_seq_length", min(default, limit) if limit else default)
    try:
        task = from_json({"name": name, **settings})
    except UserError as error:
        raise UserError(error.what, where=error.where or where, hint=error.hint, option=error.option) from None
    if limit and task.max_seq_length > limit:
        what = f"is {task.max_seq_length}, but the model has {limit} positions."
        raise wrong_option("max_seq_length", what, where=where)
    return task


def read_encoder(path: str | Path, config: Mapping[str, Any]) -> Encoder:
    """Load the tokenizer as transformers would, and keep its fast core."""
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "spm.model")
    if not any((Path(path) / name).is_file() for name in names):
        raise UserError("The model folder has no tokenizer.", where=str(path), hint="Copy its tokenizer files there.")
    tokenizer = read_tokenizer(path)
    core = getattr(tokenizer, "backend_tokenizer", None)
    if core is None:
        raise UserError("The tokenizer has no fast form (tokenizer.json).", where=str(path))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else config.get("pad_token_id")
    size = 1 + max(core.get_vocab(with_added_tokens=True).values(), default=-1)
    if size > int(config.get("vocab_size", size)):
        what = f"The tokenizer numbers its tokens up to {size - 1}, the model's table has {config['vocab_size']} rows"
        raise UserError(f"{what}: they do not belong together.", where=str(path))
    return Encoder(core, 0 if pad is None else int(pad))


def read_tokenizer(path: str | Path) -> Any:
    """Load transformers' own tokenizer; runs no code of the folder's and asks nobody whether it may."""
    try:
        from transformers import AutoTokenizer

        from .torch_folder import cannot_load, quiet_transformers
    except ImportError:
        raise missing_package("transformers", "reading a transformers folder", "compress") from None
    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # `tokenizers` raises nothing more special than this
        raise cannot_load("The tokenizer", path, error) from error


def read_provenance(path: str | Path, config: Mapping[str, Any]) -> Provenance:
    """What the folder's card and config say of where it comes from; a card that is not one says nothing."""
    card = _card_metadata(Path(path) / "README.md")
    snapshot = SNAPSHOT.search(Path(path).resolve().as_posix())
    ids = [snapshot[1].replace("--", "/")] if snapshot else []
    ids += [*_texts(card.get("base_model")), *_texts(config.get("_name_or_path"))]
    is_hub = (name for name in ids if HUB_ID.fullmatch(name) and not Path(name).exists())
    return Provenance(
        base_model=next(is_hub, None),
        license=_text(card.get("license")),
        license_name=_text(card.get("license_name")),
        license_link=_text(card.get("license_link")),
        language=_texts(card.get("language")),
        datasets=_texts(card.get("datasets")),
    )


def _card_metadata(place: Path) -> Mapping[str, Any]:
    """The YAML between the first two lines of dashes."""
    text = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
    found = FRONT_MATTER.match(text)
    try:
        content = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    return content if isinstance(content, dict) else {}


def _texts(value: Any) -> tuple[str, ...]:
    """What a card has as one text or as a list of them."""
    return tuple(text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _text(value: Any) -> str | None:
    """The first of them."""
    return next(iter(_texts(value)), None)


def read_notes(path: str | Path) -> dict[str, Any]:
    """Read the settings that the folder carries, if any."""
    place = Path(path) / NOTES
    if not place.is_file():
        return {}
    try:
        return dict(json.loads(place.read_text(encoding="utf-8"))["task"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"The notes are damaged ({error!r}).", where=str(place), hint="Remove the file.") from None


def _labels(path: str | Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("id2label")
    if not names:
        return tuple(f"LABEL_{i}" for i in range(int(config.get("num_labels", 2))))
    try:
        numbers = {int(key): str(name) for key, name in names.items()}
        return tuple(numbers[i] for i in range(len(names)))
    except (AttributeError, KeyError, ValueError):
        what = "The 'id2label' must name every label by its number: 0, 1, 2 …"
        raise UserError(what, where=str(Path(path) / "config.json")) from None
