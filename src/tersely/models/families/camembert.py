"""CamemBERT: BERT's layers, other embeddings."""

from dataclasses import replace

from .bert import BERT

CAMEMBERT = replace(BERT, model_type="camembert")
