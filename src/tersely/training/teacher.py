"""The network that another learns from: the model itself, or a folder of the same task, refused if it does not fit."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..artifact import sha256
from ..errors import UserError
from ..models.carve import shape_of
from ..models.families import Family, find
from ..models.folder import ModelFolder
from ..models.torch_folder import load_module
from .loss_settings import LossSettings


def open_teacher(model: nn.Module, family: Family | None, settings: LossSettings) -> tuple[Any, Family | None]:
    """The teacher and its family, which only hidden states ask for: without them it may be None."""
    if settings.teacher is None:
        return model, family
    if isinstance(settings.teacher, ModelFolder):  # what the model was made of: it fits
        teacher = settings.teacher.load()
        return teacher, find(teacher) if family is not None else None
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
        layers = [len(shape_of(one, kind).layers) for one, kind in ((teacher, own), (model, family))]
        if theirs.hidden_size != ours.hidden_size or layers[0] != layers[1]:
            what = (
                f"The teacher has {layers[0]} layers of {theirs.hidden_size}, "
                f"the model {layers[1]} of {ours.hidden_size}"
            )
            hint = "Set --distill_hidden 0 to learn from its answers alone."
            raise UserError(f"{what}: their hidden states cannot be compared.", where=where, hint=hint)
    return teacher, own


def teacher_marks(settings: LossSettings) -> list[str]:
    """What the teacher's files hold, as hashes; none where the model teaches itself."""
    if settings.teacher is None:
        return []
    place = settings.teacher.path if isinstance(settings.teacher, ModelFolder) else settings.teacher
    return [sha256(path) for path in sorted(place.iterdir()) if path.is_file()]
