"""The description of a model family: where heads and neurons lie in a model, how long a text it reads. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SHIFTED = {"roberta", "xlm-roberta", "camembert", "mpnet"}
"""Families whose positions start behind the padding id, so that the table holds two rows less than it seems."""


@dataclass(frozen=True)
class Stacked:
    """One linear layer that holds several in its output, one after the other: `Stacked("attn.Wqkv", 3)`."""

    path: str
    times: int


def path_and_times(part: str | Stacked) -> tuple[str, int]:
    """Where a linear layer lies, and how many are stacked in it.

    >>> path_and_times("query"), path_and_times(Stacked("Wqkv", 3))
    (('query', 1), ('Wqkv', 3))
    """
    return (part.path, part.times) if isinstance(part, Stacked) else (part, 1)


@dataclass(frozen=True)
class Family:
    """Where the parts of an encoder lie. `tersely.testing.check_family` proves a description on a model.

    `layers` and `head_tables` are paths inside the encoder (the module that has `layers`, wherever it lies in the
    model); all others are paths inside one layer. Every layer is an attention over heads whose context goes through
    one linear layer, and a feed-forward network whose inner activation goes through one.

    >>> mine = Family(
    ...     model_type="mine",
    ...     layers="blocks",
    ...     attention_in=(Stacked("attention.qkv", 3),),
    ...     attention_out="attention.out",
    ...     ffn_in=("ffn.gate", "ffn.up"),
    ...     ffn_out="ffn.down",
    ...     head_size="attention.head_size",
    ... )
    """

    model_type: str
    """What the model's config calls itself: `config.model_type`."""
    layers: str
    """The `ModuleList` of layers."""
    attention_in: tuple[str | Stacked, ...]
    """Linear layers whose outputs go by head: query, key, value, or one that stacks them."""
    attention_out: str
    """The linear layer whose input is the context of all heads, side by side."""
    ffn_in: tuple[str | Stacked, ...]
    """Linear layers whose outputs go by neuron: one, a gate and its partner, or one that stacks the two."""
    ffn_out: str
    """The linear layer whose input is the inner activation."""
    head_size: str
    """The attribute that holds the size of one head."""
    head_count: tuple[str, ...] = ()
    """Attributes that hold the number of heads, to be set in a smaller layer."""
    head_width: tuple[str, ...] = ()
    """Attributes that hold number times size of heads, to be set in a smaller layer."""
    attention_in_if_there: tuple[str | Stacked, ...] = ()
    """Further layers like `attention_in` that only some models of the family have."""
    head_tables: tuple[str, ...] = ()
    """Embeddings with one column per head that serve all layers: these then share one order and number of heads."""
    layer_lists: tuple[str, ...] = ()
    """Entries of the config that hold one value per layer."""
    layers_share_weights: bool = False
    """One layer applied `config.num_hidden_layers` times."""
    norm_first: bool = False
    """Whether a norm stands before attention and FFN, not behind their sum with what they are added to."""
    refuse: Callable[[Any], str | None] | None = None
    """Says of a config what makes its model one that this description does not fit, or None."""

    @property
    def heads_are_shared(self) -> bool:
        """Whether all layers must keep the same heads."""
        return bool(self.head_tables) or self.layers_share_weights


def longest(config: Mapping[str, Any]) -> int | None:
    """How many tokens the model's position table has room for; None where it has no table.

    >>> longest({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    512
    """
    positions = config.get("max_position_embeddings")
    if positions is None:
        return None
    shift = int(config.get("pad_token_id") or 0) + 1 if config["model_type"] in SHIFTED else 0
    return int(positions) - shift
