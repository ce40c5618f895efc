"""XLM-RoBERTa: BERT's layers, other embeddings."""

from __future__ import annotations

from dataclasses import replace

from .bert import BERT

XLM_ROBERTA = replace(BERT, model_type="xlm-roberta")
