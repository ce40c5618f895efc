"""The network that another learns from: the model itself, or a folder of the same task; and what its layers give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..artifact import sha256
from ..errors import UserError
from ..models.carve import locate, shape_of
from ..models.families import Family, find
from ..models.folder import ModelFolder
from ..models.torch_folder import load_module
from .losses import LossSettings


@dataclass(frozen=True)
class Teacher:
    """A network to learn from. Its family only matters to hidden states: without them it may be None."""

    module: Any
    family: Family | None


def open_teacher(model: nn.Module, family: Family | None, settings: LossSettings) -> Teacher:
    """The teacher that the settings name, refused if it does not fit the model."""
    if settings.teacher is None:
        return Teacher(model, family)
    if isinstance(settings.teacher, ModelFolder):  # what the model was made of: it fits
        teacher = settings.teacher.load()
        return Teacher(teacher, find(teacher) if family is not None else None)
    where = str(settings.teacher)
    teacher = load_module(settings.teacher)
    own = find(teacher) if family is not None else None
    theirs, ours = teacher.config, model.config
    if type(teacher).__name__.rpartition("For")[2] != type(model).__name__.rpartition("For")[2]:
        what = f"The teacher is a {type(teacher).__name__}, the model a {type(model).__name__}: their tasks differ."
        raise UserError(what, where=where)
    for name in ("vocab_size", "id2label"):
        if getattr(theirs, name) != getattr(ours, name):
            raise UserError(f"The teacher's '{name}' is not the model's.", where=where)
    if settings.distill_hidden and own is not None and family is not None:
        layers = [len(shape_of(module, of).layers) for module, of in ((teacher, own), (model, family))]
        if theirs.hidden_size != ours.hidden_size or layers[0] != layers[1]:
            what = (
                f"The teacher has {layers[0]} layers of {theirs.hidden_size}, "
                f"the model {layers[1]} of {ours.hidden_size}"
            )
            hint = "Set --distill_hidden 0 to learn from its answers alone."
            raise UserError(f"{what}: their hidden states cannot be compared.", where=where, hint=hint)
    return Teacher(teacher, own)


def teacher_marks(settings: LossSettings) -> list[str]:
    """What the teacher's files hold, as hashes; none where the model teaches itself."""
    if settings.teacher is None:
        return []
    place = settings.teacher.path if isinstance(settings.teacher, ModelFolder) else settings.teacher
    return [sha256(path) for path in sorted(place.iterdir()) if path.is_file()]


@contextmanager
def record_states(model: nn.Module, family: Family) -> Iterator[list[torch.Tensor]]:
    """Record the embeddings' output and every layer's, [rows, length, hidden] each, of the forwards inside.

    `hidden_states` without asking the model for them: one of the user's own that gives logits alone is as good. For
    one forward the list holds one more than there are layers. Costs nothing but their memory.
    """
    states: list[torch.Tensor] = []
    places = locate(model, family)

    def before(_module: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if not states:
            states.append(inputs[0] if inputs else named["hidden_states"])

    def after(_module: nn.Module, _inputs: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    blocks = [model.get_submodule(name) for name in places.blocks]
    with ExitStack() as hooks:  # a hook's handle takes it off
        hooks.enter_context(blocks[0].register_forward_pre_hook(before, with_kwargs=True))
        for block in blocks:
            hooks.enter_context(block.register_forward_hook(after))
        yield states
