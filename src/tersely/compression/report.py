"""What a compress run found, in plain types: the content of `result.json`, with the answers that changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import __version__
from ..engines.cpu import cpu
from ..measure.score import Comparison, Score
from ..qat import Trained
from ..quant_map import REASONS, QuantMap
from ..quantize.weights import unsafe_pairs
from ..tasks import Task
from .choice import Measured
from .parents import Parent
from .result import CompressionResult

SHOWN, LONGEST, MOST_LABELS, MOST_WORDS = 20, 280, 30, 12
"""Changed rows to show, characters of a text, labels of a matrix that can still be read, words of a sentence."""
VERDICTS = ("worse", "neither", "better")


def as_json(result: CompressionResult) -> dict[str, Any]:
    """Give everything that a reader, a report or a script asks for; scores are fractions, sizes bytes."""
    here = cpu()
    fp32, task = result.fp32, result.source.task
    metric = task.metrics[task.metric]
    return {
        "tersely_version": __version__,
        "model": result.source.model_name,
        "task": task.name,
        "metric": task.metric,
        "greater_is_better": metric.greater_is_better,
        "fraction": bool(np.isfinite(metric.bounds).all()),
        "cpu": {"class": here.cpu_class, "name": here.name, "threads_of_timings": 1},
        "rows": {**result.rows.counts, "chosen_on": result.rows.chosen_on},
        "notes": list(result.notes),
        "fp32": {
            **_score(fp32.score),
            "size": fp32.size,
            "memory_mb": fp32.memory_mb,
            "engine_by_batch": {str(batch): engine for batch, engine in fp32.engines.items()},
            "seconds_by_batch": {str(batch): seconds for batch, seconds in fp32.seconds.items()},
            "sha256": result.source.digest,
            "shape": None if result.full_shape is None else result.full_shape.to_json(),
        },
        "best": result.best.name,
        "path": "best",
        "rule": result.choice.rule,
        "target": None if result.setting is None else {**asdict(result.setting), "missed": dict(result.missed)},
        "rungs": [asdict(rung) for rung in result.rungs],
        "not_tried": list(result.not_tried),
        "latency_tables": [table.to_json() for table in result.tables],
        "max_drop": result.max_drop,
        "met_max_drop": result.met,
        "pruned": [_parent(parent) for parent in result.parents if parent.name and not parent.trained],
        "trained": [_trained(parent, parent.trained) for parent in result.parents if parent.trained],
        "candidates": [_candidate(measured, result) for measured in result.candidates],
        "same": dict(result.same),
        "screened_out": [
            {
                "name": measured.name,
                "strategy": measured.candidate.plan.name,
                "same_answer": measured.fidelity,
                "mean_abs_logit_change": measured.logit_change,
            }
            for measured in result.screened
        ],
        "layers": _layers(result.best.candidate.quant_map),
        "reasons": REASONS,
        "sensitivity": dict(result.sensitivity),
        "changes": changes(result),
        "confusion": confusion(result),
        "test": None
        if result.test is None
        else {
            "fp32": _score(result.test.fp32),
            "best": {**_score(result.test.best), **_comparison(result.test.comparison)},
        },
        "settings": dict(result.settings),
    }


def _layers(quant_map: QuantMap) -> list[dict[str, Any]]:
    """Every layer, table and product of a quantization map: its precision, or why it stays float."""
    found: list[dict[str, Any]] = []
    for name, layer in quant_map.layers.items():
        found.append(
            {
                "name": name,
                "kind": "layer",
                "precision": "int8",
                "range": None if layer.range is None else [layer.range.low, layer.range.high],
                "shape": list(layer.integers.shape),
                "smoothed": layer.smooth is not None,
                "largest_integer": int(np.abs(layer.integers.astype(np.int16)).max(initial=0)),
                "unsafe_pairs": unsafe_pairs(layer.integers),
            }
        )
    found += [
        {"name": name, "kind": "table", "precision": "int8", "shape": list(table.integers.shape)}
        for name, table in quant_map.tables.items()
    ]
    classes = list(quant_map.product_classes)
    found += [
        {"name": name, "kind": "product", "precision": "int8", "cpu_classes": classes} for name in quant_map.products
    ]
    left = quant_map.left_float.items()
    return found + [{"name": name, "precision": "float", "reason": reason} for name, reason in left]


def _candidate(measured: Measured, result: CompressionResult) -> dict[str, Any]:
    return {
        "name": measured.name,
        "strategy": measured.candidate.plan.name,
        "model": measured.candidate.parent.name or None,
        "path": f"candidates/{measured.name}",
        "engine": measured.engine,
        "emulated": measured.emulated,
        **_score(measured.score),
        **_comparison(measured.comparison),
        "size": measured.size,
        "folder_size": measured.folder_size,
        "memory_mb": measured.memory_mb,
        "speed_by_batch": {
            str(batch): {"ratio": ratio, "spread": [low, high]} for batch, (ratio, low, high) in measured.speed.items()
        },
        "speedup": None
        if measured.speedup is None
        else {"ratio": measured.speedup[0], "spread": list(measured.speedup[1:])},
        "evaluation_seconds_by_threads": {
            threads: {"fp32": before, "int8": after} for threads, (before, after) in measured.evaluation.items()
        },
        "cpu_classes": list(measured.candidate.quant_map.cpu_classes),
        "pareto": measured.name in result.pareto,
        "why_not": result.choice.reasons.get(measured.name),
    }


def _parent(parent: Parent) -> dict[str, Any]:
    """A model that pruning made: how, its shape, and what it scored in torch when it was chosen among its steps."""
    pruned, vocabulary = parent.pruned, parent.vocabulary
    found: dict[str, Any] = {"name": parent.name, "path": f"torch/{parent.name}", "sha256": parent.digest}
    found["size"] = parent.fp32.loaded_bytes(parent.fp32.manifest.graphs[0])
    if pruned is not None:
        found |= {"width": str(pruned.width), "depth": str(pruned.depth), "shape": pruned.shape.to_json()}
        found |= {"torch_score": pruned.score.value, "step": pruned.step}
    if parent.shot is not None:
        found["shape"] = parent.shot.shape.to_json()
        found["shot"] = {name: value for name, value in vars(parent.shot).items() if name not in ("name", "shape")}
    if parent.distilled is not None:
        found["distilled"] = {name: value for name, value in vars(parent.distilled).items() if name != "folder"}
    if vocabulary is not None:
        plain = vocabulary.as_json()
        found["vocabulary"] = {name: value for name, value in plain.items() if name != "folder"}
    return found


def _trained(parent: Parent, trained: Trained) -> dict[str, Any]:
    """A model that was trained for INT8: its strategies, the step, and what it scored in torch, fake-quantized."""
    return {
        "model": parent.name or None,
        "strategies": [plan.name for plan in parent.plans],
        "sha256": parent.digest,
        "torch_score": trained.score.value,
        "step": trained.step,
    }


def _score(scored: Score | None) -> dict[str, Any]:
    if scored is None:
        return {"score": None}
    return {
        "score": scored.value,
        "interval": None if scored.interval is None else list(scored.interval),
        "metrics": scored.metrics,
        "rows": scored.rows,
        "evaluation_seconds": scored.seconds,
    }


def _comparison(compared: Comparison) -> dict[str, Any]:
    drop = compared.drop
    return {
        "drop": None if drop is None else drop.drop,
        "drop_interval": None if drop is None or math.isnan(drop.low) else [drop.low, drop.high],
        "same_answer": compared.same_answer,
        "mean_abs_logit_change": compared.mean_abs_logit_change,
    }


def changes(result: CompressionResult) -> dict[str, Any]:
    """Count the changed answers and describe the worst: place, texts, both answers and the gold."""
    task, examples = result.source.task, result.rows.scoring
    before, after = result.fp32.answers.by_row, result.best.answers.by_row
    equal = task.agreement(before, after)
    changed = [int(row) for row in np.flatnonzero(equal[:, 0] < equal[:, 1])]
    found: dict[str, Any] = {"rows": len(examples), "changed": len(changed)}
    gains = None
    if result.best.statistics is not None:
        gains = task.rightness(examples, after) - task.rightness(examples, before)
        found |= {"worse": int((gains[changed] < 0).sum()), "better": int((gains[changed] > 0).sum())}
    worst = changed if gains is None else sorted(changed, key=lambda row: (float(gains[row]), row))
    places = result.rows.places
    shown = []
    for row in worst[:SHOWN]:
        change: dict[str, Any] = {"where": places[row] if places else f"row {row + 1}"}
        change["texts"] = texts(examples[row], before[row])
        change |= answered(task, examples[row], before[row], after[row], labelled=gains is not None)
        if gains is not None:
            change["verdict"] = VERDICTS[int(np.sign(gains[row])) + 1]
        shown.append(change)
    return {**found, "shown": shown}


def confusion(result: CompressionResult) -> dict[str, Any] | None:
    """How often each label (by row) was answered with which (by column); None where that has no meaning."""
    task = result.source.task
    single_label = task.loss == "single_label_classification" and result.best.statistics is not None
    if not single_label or len(task.labels) > MOST_LABELS:
        return None
    golds = [example.gold for example in result.rows.scoring]
    both = {"fp32": result.fp32.answers.by_row, "best": result.best.answers.by_row}
    found: dict[str, Any] = {"labels": list(task.labels)}
    for name, answers in both.items():
        counts = np.zeros((len(task.labels), len(task.labels)), int)
        np.add.at(counts, (golds, [answer.value for answer in answers]), 1)
        found[name] = counts.tolist()
    return found


def texts(example: Any, answer: Any = None) -> dict[str, str]:
    """What a row says, by name, cut to a length that can be read; a context around the answer. Ids say nothing."""
    found = {name: getattr(example, name, None) for name in ("text", "text_pair", "question", "context")}
    at = getattr(answer, "start", 0)
    kept = {name: text for name, text in found.items() if isinstance(text, str) and text}
    return {name: cut(text, at if name == "context" else 0) for name, text in kept.items()}


def cut(text: str, at: int = 0, longest: int = LONGEST) -> str:
    """The part of a text around a place, with dots where something is missing.

    >>> cut("one two three", longest=8), cut("one two three", 8, longest=5)
    ('one two…', '…o thr…')
    """
    start = max(0, min(at - longest // 2, len(text) - longest))
    end = start + longest
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"


def answered(task: Task, example: Any, before: Any, after: Any, *, labelled: bool) -> dict[str, Any]:
    """Both answers in words, and the gold where there is one; of tags only those that changed."""
    gold = example.gold if labelled else None
    if hasattr(before, "tags"):
        differ = [i for i, pair in enumerate(zip(before.tags, after.tags, strict=True)) if pair[0] != pair[1]]
        words = getattr(before, "words", None) or [str(i + 1) for i in range(len(before.tags))]
        said = {"fp32": before.tags, "best": after.tags, **({} if gold is None else {"gold": gold})}
        return {name: _tags(words, tags, differ) for name, tags in said.items()}
    both = {"fp32": _said(task, before), "best": _said(task, after)}
    return both if gold is None else {**both, "gold": _gold(task, gold)}


def _tags(words: Sequence[str], tags: Sequence[str], places: Sequence[int]) -> str:
    more = f" and {len(places) - MOST_WORDS} more" if len(places) > MOST_WORDS else ""
    return ", ".join(f"{words[i]} {tags[i]}" for i in places[:MOST_WORDS]) + more


def _said(task: Task, answer: Any) -> str:
    said = str(answer.in_words())
    return said if task.labels else cut(said)  # an answer to a question may be long


def _gold(task: Task, gold: Any) -> str:
    if isinstance(gold, tuple) and hasattr(gold, "_fields"):
        return " to ".join(map(str, gold))
    if not task.labels:  # a question: several golds may be right
        return cut(" / ".join(dict.fromkeys(text for text, _ in gold))) or "no answer"
    return _value(task, gold)


def _value(task: Task, value: Any) -> str:
    """A label, several, or a number."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(name for name, on in zip(task.labels, value, strict=True) if on) or "no label"
    return str(task.labels[value])
