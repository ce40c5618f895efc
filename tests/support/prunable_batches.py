"""Batches of token numbers with padding for the small models of `models.build`."""

from __future__ import annotations

from typing import Any

import torch

from tersely.engines.torch import as_tuple, input_names, output_names


def batch_for(model: Any, lengths: tuple[int, ...] = (12, 7, 3), *, width: int | None = None, seed: int = 0) -> dict:
    """Inputs [rows, longest]; a row's tokens depend on its number and the seed alone, not on the padding."""
    width = width or max(lengths)
    ids = torch.full((len(lengths), width), int(model.config.pad_token_id))
    for row, length in enumerate(lengths):
        drawn = torch.Generator().manual_seed(1000 * seed + row)
        ids[row, :length] = torch.randint(5, 100, (length,), generator=drawn)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    every = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return {name: every[name] for name in input_names(model)}


def logits(model: Any, batch: dict, **settings: Any) -> torch.Tensor:
    """All outputs in one row."""
    with torch.no_grad():
        return torch.cat([output.flatten() for output in as_tuple(model(**batch, **settings), output_names(model))])


def off(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest difference."""
    return (first - second).abs().max().item()
