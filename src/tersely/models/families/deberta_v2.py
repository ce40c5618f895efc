"""DeBERTa-v2 and v3: relative positions go through the query and key layers, or through two layers of their own.

The convolution that some have beside the first layer works on the hidden size and stays as it is.
"""

from dataclasses import replace

from .bert import BERT

DEBERTA_V2 = replace(
    BERT,
    model_type="deberta-v2",
    attention_in=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
    attention_in_if_there=("attention.self.pos_key_proj", "attention.self.pos_query_proj"),
)
