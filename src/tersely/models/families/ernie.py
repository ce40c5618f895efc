"""ERNIE: BERT's layers, other embeddings."""

from dataclasses import replace

from .bert import BERT

ERNIE = replace(BERT, model_type="ernie")
