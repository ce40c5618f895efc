"""MPNet: one table of relative positions, a column per head, is added to the scores of every layer."""

from .family import Family

MPNET = Family(
    model_type="mpnet",
    layers="encoder.layer",
    attention_in=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    attention_out="attention.attn.o",
    ffn_in=("intermediate.dense",),
    ffn_out="output.dense",
    head_size="attention.attn.attention_head_size",
    head_count=("attention.attn.num_attention_heads",),
    head_width=("attention.attn.all_head_size",),
    head_tables=("encoder.relative_attention_bias",),
)
