"""RoBERTa: BERT's layers, other embeddings."""

from dataclasses import replace

from .bert import BERT

ROBERTA = replace(BERT, model_type="roberta")
