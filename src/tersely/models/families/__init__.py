"""One file per build of model, and this table of the families.

>>> find("bert").layers
'encoder.layer'
>>> find("gpt2")
Traceback (most recent call last):
tersely.errors.UserError: The family 'gpt2' has no description, so that its heads and neurons are not known. Write a tersely.models.families.Family and register it, see docs/how_to/describe_a_family.md; described are: bert, roberta, xlm-roberta, ernie, electra, distilbert, mpnet, camembert, deberta-v2, albert, modernbert.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UserError
from .albert import ALBERT
from .bert import BERT, CAMEMBERT, ELECTRA, ERNIE, ROBERTA, XLM_ROBERTA
from .deberta_v2 import DEBERTA_V2
from .distilbert import DISTILBERT
from .family import SHIFTED, Family, Stacked, longest
from .modernbert import MODERNBERT
from .mpnet import MPNET

__all__ = ["FAMILIES", "SHIFTED", "Family", "Stacked", "find", "longest", "register"]

FAMILIES = {
    family.model_type: family
    for family in (
        BERT, ROBERTA, XLM_ROBERTA, ERNIE, ELECTRA, DISTILBERT, MPNET, CAMEMBERT, DEBERTA_V2, ALBERT, MODERNBERT,
    )
}  # fmt: skip
"""By `config.model_type`."""


def find(model: Any) -> Family:
    """The description of a model, a config, its dictionary or a `model_type`; a UserError where there is none.

    A module without a config of its own, or with one that is not described, is looked through for an encoder that is.
    Costs nothing.
    """
    kind = _model_type(model)
    if kind in FAMILIES:
        return FAMILIES[kind]
    what = "The model has no config with a 'model_type', so that its family is not known."
    if kind is not None:
        what = f"The family '{kind}' has no description, so that its heads and neurons are not known."
    hint = "Write a tersely.models.families.Family and register it, see docs/how_to/describe_a_family.md; "
    raise UserError(what, hint=f"{hint}described are: {', '.join(FAMILIES)}.")


def register(family: Family) -> Family:
    """Add a family of your own to the table for this process, so that models of its `model_type` are found."""
    FAMILIES[family.model_type] = family
    return family


def _model_type(model: Any) -> str | None:
    if model is None or isinstance(model, str):
        return model
    if isinstance(model, Mapping):
        return model.get("model_type")
    kind = getattr(model, "model_type", None) or getattr(getattr(model, "config", None), "model_type", None)
    if kind not in FAMILIES and hasattr(model, "modules"):
        inner = [getattr(getattr(part, "config", None), "model_type", None) for part in model.modules()]
        # A config of the user's own in a class of transformers: the class says what is built.
        inner += [getattr(getattr(part, "config_class", None), "model_type", None) for part in model.modules()]
        known = (name for name in inner if name in FAMILIES)
        kind = next(known, kind or next((name for name in inner if name is not None), None))
    return kind
