"""ELECTRA: BERT's layers; a projection behind the (narrower) embeddings, which stays as it is."""

from dataclasses import replace

from .bert import BERT

ELECTRA = replace(BERT, model_type="electra")
