"""What a trainer is made of, as far as compression looks at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parts:
    """Model, datasets and the functions of the user's.

    `load` gives collated batches of a part of a dataset; `loader` what an evaluator of the user's goes through.
    `evaluate` takes (model, dataloader). `primary` names the number of `compute_metrics` that chooses.
    """

    model: Any
    tokenizer: Any
    train: Any
    evaluation: Any
    load: Callable[[Any], Any]
    loader: Callable[[Sequence[int]], Any]
    criterion: Any = None
    evaluate: Callable[[Any, Any], Any] | None = None
    compute_metrics: Any = None
    preprocess: Any = None
    primary: str | None = None
    greater_is_better: bool = True
    paddle_order: bool = False
    label_names: tuple[str, ...] | None = None
    tensor_names: tuple[str, ...] | None = None
    eval_examples: Any = None
