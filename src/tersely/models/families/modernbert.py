"""ModernBERT: query, key and value in one layer; a gated feed-forward network whose two branches are one layer too."""

from .family import Family, Stacked

MODERNBERT = Family(
    model_type="modernbert",
    layers="layers",
    attention_in=(Stacked("attn.Wqkv", 3),),
    attention_out="attn.Wo",
    ffn_in=(Stacked("mlp.Wi", 2),),
    ffn_out="mlp.Wo",
    head_size="attn.head_dim",
    layer_lists=("layer_types",),
    norm_first=True,
)
