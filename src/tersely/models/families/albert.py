"""ALBERT: one layer, applied again and again. (Several groups of layers, which no published model has: refused.)"""

from __future__ import annotations

from typing import Any

from .family import Family


def _several_groups(config: Any) -> str | None:
    groups, inner = config.num_hidden_groups, config.inner_group_num
    return None if groups == inner == 1 else f"{groups} groups of {inner} layers; one group of one layer is expected"


ALBERT = Family(
    model_type="albert",
    layers="encoder.albert_layer_groups.0.albert_layers",
    attention_in=("attention.query", "attention.key", "attention.value"),
    attention_out="attention.dense",
    ffn_in=("ffn",),
    ffn_out="ffn_output",
    head_size="attention.attention_head_size",
    head_count=("attention.num_attention_heads",),
    head_width=("attention.all_head_size",),
    layers_share_weights=True,
    refuse=_several_groups,
)
