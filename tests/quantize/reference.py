"""What the pipeline is compared with: torch's own activations, one row at a time and so without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from tersely.quant_map import QuantLayer
from tersely.tasks import Feature

LARGEST_ID = 130  # of the smallest vocabulary of all families


def make_features(count: int, *, seed: int = 0, shortest: int = 3, longest: int = 30) -> list[Feature]:
    """Rows of random tokens, none of them special."""
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, longest + 1, count)
    return [
        Feature(row, random.integers(5, LARGEST_ID, length), (np.arange(length) > length // 2).astype(np.int64))
        for row, length in enumerate(lengths)
    ]


def torch_inputs(module: Any, features: Sequence[Feature]) -> list[dict[str, list[np.ndarray]]]:
    """Of each feature, by the weight's name, what each use of every linear layer reads: [tokens, channels]."""
    found: list[dict[str, list[np.ndarray]]] = []

    def keep(name: str, part: Any, inputs: Any, output: Any) -> None:
        found[-1].setdefault(name, []).append(inputs[0].numpy().reshape(-1, inputs[0].shape[-1]).copy())

    with _hooks(module, keep):
        for feature in features:
            found.append({})
            _answer(module, feature)
    return found


def torch_logits(module: Any, features: Sequence[Feature], layers: Mapping[str, QuantLayer]) -> np.ndarray:
    """What torch answers with these layers in integers, computed by hand."""
    import torch

    def replaced(name: str, part: Any, inputs: Any, output: Any) -> Any:
        if name not in layers:
            return output
        bias = None if part.bias is None else part.bias.numpy()
        made = quantized_output(layers[name], inputs[0].numpy().reshape(-1, inputs[0].shape[-1]), bias)
        return torch.from_numpy(made.astype(np.float32)).reshape(output.shape)

    with _hooks(module, replaced):
        return np.stack([_answer(module, feature) for feature in features])


def _answer(module: Any, feature: Feature) -> np.ndarray:
    import torch

    feed = {"input_ids": torch.from_numpy(feature.input_ids)[None]}
    if module.config.model_type != "deberta-v2":
        feed["token_type_ids"] = torch.from_numpy(feature.token_type_ids)[None]
    with torch.inference_mode():
        return np.asarray(module(**feed).logits[0].numpy())


@contextmanager
def _hooks(module: Any, hook: Callable[..., Any]) -> Iterator[None]:
    import torch

    handles = [
        part.register_forward_hook(partial(hook, f"{name}.weight"))
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Linear)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def tokens_of(rows: Sequence[dict[str, list[np.ndarray]]], weight: str, use: int | None = None) -> np.ndarray:
    """All that a weight (or one use of it) reads, [tokens, channels]."""
    return np.concatenate([part for row in rows for part in (row[weight] if use is None else [row[weight][use]])])


def logits(proto: Any, features: Sequence[Feature]) -> np.ndarray:
    """What a graph answers, one row at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    names = {value.name for value in session.get_inputs()}
    answers = []
    for feature in features:
        feed = {
            "input_ids": feature.input_ids[None],
            "attention_mask": np.ones((1, len(feature)), np.int64),
            "token_type_ids": feature.token_type_ids[None],
        }
        answers.append(session.run(None, {name: array for name, array in feed.items() if name in names})[0][0])
    return np.stack(answers)


def value_of(proto: Any, value: str, ids: np.ndarray) -> np.ndarray:
    """What an inner value holds for a batch; 0 is padding."""
    watched = onnx.ModelProto()
    watched.CopyFrom(proto)
    watched.graph.output.append(onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(watched.SerializeToString())
    feed = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64), "token_type_ids": np.zeros_like(ids)}
    return np.asarray(session.run([value], feed)[0])


def changed(proto: Any, **arrays: Any) -> Any:
    """A copy of a graph in which functions have changed some initializers (names with __ for a dot)."""
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    left = {name.replace("__", "."): change for name, change in arrays.items()}
    for tensor in copied.graph.initializer:
        if tensor.name in left:
            array = numpy_helper.to_array(tensor).copy()
            left.pop(tensor.name)(array)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert not left
    return copied


def quantized_output(layer: QuantLayer, x: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """A layer in integers by hand, in double precision: u8 inputs, INT8 weights."""
    assert layer.range is not None
    step = np.float64(np.float32((layer.range.high - layer.range.low) / 255))
    zero = round(-layer.range.low / step)
    smooth = np.ones(x.shape[1]) if layer.smooth is None else layer.smooth.astype(np.float64)
    codes = np.clip(np.rint(x / smooth / step) + zero, 0, 255)
    shift = layer.bias if layer.bias is not None else np.zeros(1) if bias is None else bias
    return (codes - zero) * step @ (layer.integers * layer.scales.astype(np.float64)) + shift


class Counter:
    """A `Progress` that counts the steps it gets."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.open = 0

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Any]:
        assert self.open == 0, "a terminal shows one bar at a time"
        self.open += 1
        before = self.counts.setdefault(title, 0)

        def advance(count: int = 1, note: str = "") -> None:
            self.counts[title] += count

        yield advance
        assert self.counts[title] - before == total
        self.open -= 1

    def say(self, line: str) -> None:
        raise AssertionError(line)
