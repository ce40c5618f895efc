"""A transformers folder: described, opened, loaded in torch, cut smaller, converted from PaddleNLP's."""
