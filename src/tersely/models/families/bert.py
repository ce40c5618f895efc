"""BERT, and those whose layers are built and named like BERT's (RoBERTa, XLM-R, ERNIE, ELECTRA, CamemBERT)."""

from dataclasses import replace

from .family import Family

BERT = Family(
    model_type="bert",
    layers="encoder.layer",
    attention_in=("attention.self.query", "attention.self.key", "attention.self.value"),
    attention_out="attention.output.dense",
    ffn_in=("intermediate.dense",),
    ffn_out="output.dense",
    head_size="attention.self.attention_head_size",
    head_count=("attention.self.num_attention_heads",),
    head_width=("attention.self.all_head_size",),
)

# Other embeddings alone; behind ELECTRA's narrower ones a projection, which stays as it is.
ROBERTA, XLM_ROBERTA, ERNIE, ELECTRA, CAMEMBERT = (
    replace(BERT, model_type=name) for name in ("roberta", "xlm-roberta", "ernie", "electra", "camembert")
)
