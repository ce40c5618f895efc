"""RoBERTa: BERT's layers, other embeddings."""

from __future__ import annotations

from dataclasses import replace

from .bert import BERT

ROBERTA = replace(BERT, model_type="roberta")
