"""What the three scripts share: their flags, the predictor, and one line for a mistake."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tersely import UserError, runtime
from tersely.models.folder import make_task, read_config
from tersely.tasks import to_json
from tersely.tasks.options import TaskOptions


def parse(description: str | None, inputs: str) -> argparse.Namespace:
    """Read the flags that PaddleNLP's scripts have, as far as they can have an effect here."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("inputs", nargs="*", help=f"{inputs} (some samples)")
    parser.add_argument("--model_dir", required=True, help="artifact: what tersely export or tersely compress wrote")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: ONNX Runtime with CUDA (cpu)")
    parser.add_argument("--backend", "--engine", default="auto", help="auto, onnxruntime or openvino (auto)")
    parser.add_argument("--num_threads", type=int, help="threads (one a core)")
    parser.add_argument("--batch_size", type=int, default=1, help="inputs a batch (1)")
    parser.add_argument("--max_length", type=int, help="tokens a sequence may have (what the model was scored with)")
    return parser.parse_args()


def load(args: argparse.Namespace, task: str) -> runtime.Predictor:
    """The artifact on the engine, with the length that was asked for."""
    engine = args.backend.replace("onnx_runtime", "onnxruntime")
    providers = ["CUDAExecutionProvider"] if args.device == "gpu" else None
    predictor = runtime.load(args.model_dir, engine, args.num_threads, providers=providers)
    settings = to_json(predictor.task)
    if (name := settings.pop("name")) != task:
        raise UserError(f"The model is for {name}, the script for {task}.", where=args.model_dir)
    options = TaskOptions(max_seq_length=args.max_length)
    longer = make_task(name, settings, options, read_config(args.model_dir), where=args.model_dir)
    return replace(predictor, task=longer, batch_size=args.batch_size)


def answers(predictor: runtime.Predictor, inputs: list[Any]) -> Iterator[tuple[int, int, Any, Any]]:
    """Batch id, example id, input and answer of each."""
    for batch, start in enumerate(range(0, len(inputs), predictor.batch_size)):
        chunk = inputs[start : start + predictor.batch_size]
        for example, (value, answer) in enumerate(zip(chunk, predictor.predict(chunk), strict=True)):
            yield batch, example, value, answer


def run(main: Callable[[], None]) -> None:
    """A user's mistake is one line and exit code 2."""
    try:
        main()
    except UserError as error:
        error.on_command_line = True
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
