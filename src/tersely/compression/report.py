"""What a compress run found, in plain types: the content of `result.json`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import __version__
from ..engines.cpu import cpu
from ..measure.score import Comparison, Score
from ..quant_map import REASONS, QuantMap
from ..quantize.weights import unsafe_pairs
from .changes import changes, confusion
from .measured import Measured
from .parents import Parent
from .result import CompressionResult


def as_json(result: CompressionResult) -> dict[str, Any]:
    """Give everything that a reader, a report or a script asks for; scores are fractions, sizes bytes."""
    here = cpu()
    fp32, task = result.fp32, result.source.task
    metric = task.metrics[task.metric]
    return {
        "tersely_version": __version__,
        "model": result.source.name,
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
        },
        "best": result.best.name,
        "path": "best",
        "rule": result.choice.rule,
        "max_drop": result.max_drop,
        "met_max_drop": result.met,
        "pruned": [_parent(one) for one in result.parents if one.smaller and not one.trained],
        "trained": [_trained(one) for one in result.parents if one.trained],
        "candidates": [_candidate(one, result) for one in result.candidates],
        "same": dict(result.same),
        "screened_out": [
            {
                "name": one.name,
                "strategy": one.strategy,
                "same_answer": one.fidelity,
                "mean_abs_logit_change": one.logit_change,
            }
            for one in result.screened
        ],
        "layers": layers(result.best.candidate.quant_map),
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


def parent_name(one: Measured, result: CompressionResult) -> str | None:
    """The pruned model that a candidate was made of; None: the user's own."""
    found = next((parent for parent in result.parents if parent.source is one.candidate.source), None)
    return found.name or None if found else None


def layers(quant_map: QuantMap) -> list[dict[str, Any]]:
    """What became of every layer, table and product of a map."""
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


def _candidate(one: Measured, result: CompressionResult) -> dict[str, Any]:
    return {
        "name": one.name,
        "strategy": one.candidate.plan.name,
        "model": parent_name(one, result),
        "path": f"candidates/{one.name}",
        "engine": one.engine,
        "emulated": one.emulated,
        **_score(one.score),
        **_comparison(one.comparison),
        "size": one.size,
        "folder_size": one.folder_size,
        "memory_mb": one.memory_mb,
        "speed_by_batch": {
            str(batch): {"ratio": ratio, "spread": [low, high]} for batch, (ratio, low, high) in one.speed.items()
        },
        "evaluation_seconds_by_threads": {
            threads: {"fp32": before, "int8": after} for threads, (before, after) in one.evaluation.items()
        },
        "cpu_classes": list(one.candidate.quant_map.cpu_classes),
        "pareto": one.name in result.pareto,
        "why_not": result.choice.reasons.get(one.name),
    }


def _parent(one: Parent) -> dict[str, Any]:
    """A model that pruning made: how, its shape, and what it scored in torch when it was chosen among its steps."""
    if one.smaller is None:
        raise ValueError("Only what pruning made is told of.")
    pruned, vocabulary = one.smaller.pruned, one.smaller.vocabulary
    told: dict[str, Any] = {"name": one.name, "path": f"torch/{one.name}", "sha256": one.source.digest}
    told["size"] = one.source.fp32.loaded_bytes(one.source.fp32.manifest.graphs[0])
    if pruned is not None:
        told |= {"width": str(pruned.width), "depth": str(pruned.depth), "shape": pruned.shape.to_json()}
        told |= {"torch_score": pruned.score.value, "step": pruned.step}
    if vocabulary is not None:
        plain = vocabulary.as_json()
        told["vocabulary"] = {name: value for name, value in plain.items() if name != "folder"}
    return told


def _trained(one: Parent) -> dict[str, Any]:
    """A model that was trained for INT8: its strategies, the step, and what it scored in torch, fake-quantized."""
    if one.trained is None:
        raise ValueError("Only what was trained is told of.")
    return {
        "model": one.name or None,
        "strategies": [plan.name for plan in one.plans],
        "sha256": one.source.digest,
        "torch_score": one.trained.score.value,
        "step": one.trained.step,
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
