"""`probe.npz`: a few dozen inputs and the logits that the FP32 model gave, to be replayed on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..measure.check import BATCH
from ..runtime.predictor import pad, run
from ..tasks import Encoder, Feature, Task

ROWS = 32

# Ours, in two languages, of many lengths: what an export is compared on when the user gives no rows.
SENTENCES = (
    "Good.",
    "The service was slow, but the food made up for it.",
    "Nobody at the desk could tell me when the train from Hamburg would arrive.",
    "In 1998 the company moved its office from Lyon to a small town near Geneva, where it still is today.",
    "Why would anyone pay twice the price for the same thing?",
    "She said that the results, although early, were better than those of last year.",
    "Please reset my password; the link that I was sent has expired.",
    "A storm took down power lines across three counties on Tuesday night, and crews worked until morning.",
    "It is neither new nor interesting.",
    "Mr. Okafor, who founded the school with his sister Ada in Lagos, retired after forty-one years.",
    "这部电影很好看。",
    "昨天下午，张伟从北京飞往上海参加公司的年度会议。",
    "手机收到的时候屏幕已经碎了，客服说要等三天才能处理，非常失望。",
    "研究人员发现，经常散步的人睡眠更好，但原因还不清楚。",
    "请问怎么修改收货地址？",
    "华东地区今晚到明天有大雨，部分列车可能晚点。",
)
QUESTIONS = ("When did the company move?", "Who founded the school?", "张伟去了哪里？", "What happened on Tuesday?")


def probe_examples(task: Task, examples: Sequence[Any] | None = None) -> list[Any]:
    """The rows to probe with: an even choice of the user's own, else the built-in sentences."""
    if examples:
        chosen = np.unique(np.linspace(0, len(examples) - 1, min(ROWS, len(examples))).astype(int))
        return [examples[i] for i in chosen]
    second = task.facts.inputs[1:]
    if second and not second[0].optional:
        contexts = (" ".join(SENTENCES[:10]), "".join(SENTENCES[10:]))
        return task.examples([(question, contexts[i // 2 % 2]) for i, question in enumerate(QUESTIONS)])
    pairs = zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], strict=True)
    return task.examples(SENTENCES) + (task.examples(list(pairs)) if second else [])


def probe_features(task: Task, encoder: Encoder, examples: Sequence[Any]) -> list[Feature]:
    """At most `ROWS` windows of the rows."""
    return task.features(examples, encoder)[:ROWS]


def probe_batches(features: Sequence[Feature], pad_id: int) -> list[Any]:
    """Batches with padding, in the order of the rows, so that lengths mix."""
    return [pad(features[start : start + BATCH], pad_id) for start in range(0, len(features), BATCH)]


def write_probe(path: Path, features: Sequence[Feature], pad_id: int, **engines: Any) -> None:
    """Write inputs [rows, longest] and, for each engine given by keyword, `logits_<keyword>`."""
    arrays = {name: np.asarray(array) for name, array in pad(features, pad_id).items()}
    for name, engine in engines.items():
        logits = run(engine, features, pad_id, batch_size=BATCH)
        longest = arrays["input_ids"].shape[1]
        if logits[0].ndim == 2:
            logits = [np.pad(row, ((0, longest - len(row)), (0, 0))) for row in logits]
        arrays[f"logits_{name}"] = np.stack(logits)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
