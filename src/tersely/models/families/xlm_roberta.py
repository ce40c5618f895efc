"""XLM-RoBERTa: BERT's layers, other embeddings."""

from dataclasses import replace

from .bert import BERT

XLM_ROBERTA = replace(BERT, model_type="xlm-roberta")
