"""ERNIE: BERT's layers, other embeddings."""

from __future__ import annotations

from dataclasses import replace

from .bert import BERT

ERNIE = replace(BERT, model_type="ernie")
