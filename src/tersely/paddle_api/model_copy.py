"""A trainer's model as compression takes it: a copy, what goes in and comes out, and a folder with its config."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..engines.engine import INPUTS
from ..engines.torch import INPUT_NAMES, OUTPUT_NAMES, as_tuple, input_names
from ..errors import UserError
from ..models.carve import twin
from ..models.families import FAMILIES, find
from ..models.torch_folder import check_finite, quiet_transformers
from ..tasks import TASKS, Encoder, facts_of, task_of_class
from ..tasks.encoder import NoTokenizer
from ..tasks.task import AnswersFor

AXES: dict[AnswersFor, int] = {"row": 2, "tokens": 3, "span": 2}
"""Of each output, by what it is for."""
QUESTION = ("start_logits", "end_logits")


@dataclass(frozen=True)
class ModelCopy:
    """A copy in FP32 and eval mode on the CPU that says what it takes and gives; `task` is None for one of the user's.

    `order`: the parameters of its forward, for those who call it with positions. `values`: its outputs for a batch;
    `per_token`: they have an entry for each token.
    """

    template: nn.Module
    task: str | None
    order: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: tuple[NDArray[np.float32], ...]
    per_token: bool


def copy_model(model: nn.Module, batch: Mapping[str, NDArray[Any]] | None, labels: Sequence[str]) -> ModelCopy:
    """Copy a model, which is only read, and find out what it takes of a batch and gives for it; two forwards."""
    check_finite(model, "the trainer's model")
    with torch.no_grad():
        template = twin(model, lambda tensor: tensor.detach().clone()).float().cpu().eval()
    order, named = forward_names(model), head_of(model)
    if batch is None:
        batch = {"input_ids": np.arange(1, 8, dtype=np.int64)[None] % max(2, vocabulary(template) or 8)}
    ids = batch["input_ids"]
    inputs = _inputs(template, batch, labels, order, known=named is not None)
    setattr(template, INPUT_NAMES, inputs)
    filled = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids), **batch}
    feed = {name: torch.from_numpy(np.array(filled[name], np.int64)) for name in inputs}
    outputs, values = _outputs(template, feed)
    length = ids.shape[1]
    # As many labels as tokens, by chance? With tokens left out it shows.
    shorter = {name: array[:, : length - 1] if array.shape[1:2] == (length,) else array for name, array in feed.items()}
    fewer = _outputs(template, shorter)[1] if length > 1 else values
    per_token = [
        value.ndim > 1 and value.shape[1] == length != other.shape[1]
        for value, other in zip(values, fewer, strict=True)
    ]
    task = named if named is not None and _fits(named, outputs, values) else None
    if task is None:
        _check_outputs(values, outputs, ids.shape, per_token)
    setattr(template, OUTPUT_NAMES, outputs)
    return ModelCopy(template, task, order, inputs, outputs, values, all(per_token))


def forward_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of a model's forward, in order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(model.forward).parameters
    return tuple(name for name, parameter in parameters.items() if parameter.kind in kinds)


def tuple_names(model: nn.Module, count: int, labels: Sequence[str]) -> tuple[str, ...]:
    """Names for the values of a tuple: the forward's parameters in order, with the labels last."""
    order = [name for name in forward_names(model) if name not in labels]
    return (*order[: max(0, count - len(labels))], *labels)


def head_of(model: nn.Module) -> str | None:
    """The task that a model's class is for, by its name."""
    return task_of_class(type(model).__name__)


def vocabulary(model: nn.Module) -> int:
    """Rows of the largest embedding table."""
    return max((part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)), default=0)


def config_of(model: nn.Module) -> Any:
    """The config that says most: the model's own if it is of a known family, else that of an encoder inside it."""
    found = [part.config for part in model.modules() if hasattr(getattr(part, "config", None), "to_dict")]
    return next((config for config in found if config.model_type in FAMILIES), found[0] if found else None)


def write_folder(copy: ModelCopy, tokenizer: Any, place: Path, problem: str | None) -> dict[str, Any]:
    """Write config, tokenizer and a digest of the weights, which stay in memory; gives the config."""
    place.mkdir(parents=True)
    config = config_of(copy.template)
    content: dict[str, Any] = {"model_type": "own"} if config is None else json.loads(config.to_json_string(False))
    content["architectures"] = [type(copy.template).__name__]
    if content["model_type"] not in FAMILIES:
        with suppress(UserError):  # an encoder inside it may be of a described family
            content["model_type"] = find(copy.template).model_type
    content.setdefault("vocab_size", vocabulary(copy.template))
    if problem is not None and content.get("problem_type") is None:
        content["problem_type"] = problem
    (place / "config.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    digest = hashlib.sha256()
    for name, tensor in copy.template.state_dict().items():
        digest.update(name.encode() + np.ascontiguousarray(tensor.numpy()).tobytes())
    (place / "weights.sha256").write_text(digest.hexdigest() + "\n", encoding="utf-8")
    if getattr(tokenizer, "backend_tokenizer", None) is not None:
        with quiet_transformers():
            tokenizer.save_pretrained(place)
    return content


def encoder_of(tokenizer: Any, config: Mapping[str, Any], pad_id: int) -> Encoder:
    """The tokenizer's fast core; a model without one is fed numbers."""
    core = getattr(tokenizer, "backend_tokenizer", None)
    size = int(config.get("vocab_size") or 1)
    if core is None:
        return NoTokenizer(pad_id, size)
    highest = max(core.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= size:
        raise UserError(
            f"The tokenizer numbers its tokens up to {highest}, the model's table has {size} rows: they do not belong "
            "together."
        )
    return Encoder(core, pad_id)


def pad_id_of(model: nn.Module, tokenizer: Any) -> int:
    """The id of padding: the tokenizer's, else the config's, else 0."""
    found = (getattr(owner, "pad_token_id", None) for owner in (tokenizer, config_of(model)))
    return int(next((pad_id for pad_id in found if pad_id is not None), 0))


def _inputs(
    template: nn.Module, batch: Mapping[str, Any], labels: Sequence[str], order: Sequence[str], *, known: bool
) -> tuple[str, ...]:
    """What the model is fed: the usual inputs that it tells apart, and whatever else batches have for it."""
    there = [name for name in batch if name not in labels]
    parameters = inspect.signature(template.forward).parameters.values()
    if not set(order) & set(there) and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        order = there
    usual = [name for name in INPUTS if name in order and (known or name in (*there, "attention_mask"))]
    named = [*usual, *(name for name in order if name in there and name not in usual)]
    segments = getattr(config_of(template), "type_vocab_size", None)
    if segments is not None and segments < 2 and "token_type_ids" in named:
        named.remove("token_type_ids")
    if known:
        named = [*input_names(template), *(name for name in named if name not in INPUTS)]
    if "input_ids" not in named:
        takes = ", ".join(order) or "nothing"
        raise UserError(f"The forward of {type(template).__name__} must take 'input_ids'. It takes: {takes}.")
    for name in named:
        if name in batch and batch[name].dtype.kind == "f":
            raise UserError(f"The input '{name}' holds floats; graphs are fed whole numbers.")
    return tuple(named)


def _outputs(template: nn.Module, feed: Mapping[str, torch.Tensor]) -> tuple[tuple[str, ...], Any]:
    with torch.no_grad():
        try:
            output = template(**feed)
        except Exception as error:  # whatever a forward of the user's may raise
            what = f"The model's forward fails on {', '.join(feed)}: {error}"
            hint = "It is called without labels, in eval mode, with a batch of your data_collator."
            raise UserError(what, hint=hint) from error
    if isinstance(output, Mapping):
        known: tuple[str, ...] = QUESTION if set(QUESTION) <= set(output) else ("logits",) if "logits" in output else ()
        names = known or tuple(name for name, value in output.items() if isinstance(value, torch.Tensor))
        values = tuple(output[name] for name in names)
    else:
        values = as_tuple(output, ("logits",))
        names = ("logits",) if len(values) == 1 else tuple(f"output_{i}" for i in range(len(values)))
    return names, tuple(value.float().numpy() for value in values)


def _fits(task: str, names: Sequence[str], values: Any) -> bool:
    """Whether what came out is what the class's name promises: a class of the user's may give anything."""
    axes, wanted = AXES[facts_of(task).answers_for], cast(tuple[str, ...], TASKS[task].outputs)
    return tuple(names) == wanted and all(value.ndim == axes for value in values)


def _check_outputs(values: Any, names: Sequence[str], shape: tuple[int, ...], per_token: Sequence[bool]) -> None:
    axes = [value.ndim for value in values]
    single = len(axes) == 1 and axes[0] == (3 if per_token[0] else 2)
    several = len(axes) > 1 and set(axes) == {2} and all(per_token)
    if not single and not several:
        shown = ", ".join(f"{name} {list(value.shape)}" for name, value in zip(names, values, strict=True)) or "nothing"
        raise UserError(
            f"The model must give logits [rows, labels] or [rows, length, labels], or several of [rows, length]. "
            f"For {list(shape)} it gave: {shown}.",
            hint="Wrap it in a module whose forward gives one of these.",
        )
