"""DistilBERT."""

from .family import Family

DISTILBERT = Family(
    model_type="distilbert",
    layers="transformer.layer",
    attention_in=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_out="attention.out_lin",
    ffn_in=("ffn.lin1",),
    ffn_out="ffn.lin2",
    head_size="attention.attention_head_size",
    head_count=("attention.n_heads",),
)
