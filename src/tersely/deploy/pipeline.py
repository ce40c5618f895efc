"""`transformers.pipeline`, the usual way to serve a model: a yardstick, not an engine of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import transformers

from ..engines.torch import torch_threads
from ..errors import UserError
from ..models.torch_folder import cannot_load, quiet_transformers
from ..tasks import Task


def pipeline_work(
    folder: Path, task: Task, inputs: Sequence[Any], *, batch_size: int, threads: int
) -> Callable[[], object]:
    """A function that answers all inputs once: texts, pairs of texts, or (question, context) pairs."""
    tag = task.facts.pipeline_tag
    if tag not in transformers.pipelines.PIPELINE_REGISTRY.get_supported_tasks():
        version = transformers.__version__
        raise UserError(
            f"transformers {version} has no pipeline for {task.name}.", hint="Leave the engine 'pipeline' out."
        )
    try:
        with quiet_transformers():
            answer = transformers.pipeline(
                tag, model=str(folder), device="cpu", dtype="float32", trust_remote_code=False
            )
    except Exception as error:  # transformers, tokenizers and safetensors each raise kinds of their own
        raise cannot_load("The pipeline", folder, error) from error
    fed: list[Any] = [{"text": item[0], "text_pair": item[1]} if isinstance(item, tuple) else item for item in inputs]
    options: dict[str, Any] = {"batch_size": batch_size}
    if tag == "text-classification":
        options |= {"truncation": True, "max_length": task.max_seq_length}

    def work() -> object:
        with quiet_transformers(), torch_threads(threads):
            return answer(fed, **options)

    return work
