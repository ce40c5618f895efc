"""The `result.json` of a search for speed, written by hand: nothing of it is compressed."""

from __future__ import annotations

from typing import Any

FULL = {"version": 2, "heads": [12] * 6, "ffn": [1536] * 6, "layers": [*range(6)]}
SHAPES = {
    3.9: {"heads": [9, 8, 6, 6, 5, 3], "ffn": [1152, 1024, 896, 768, 512, 128]},
    5.3: {"heads": [6, 5, 4, 0, 3, 1], "ffn": [704, 640, 512, 384, 0, 64]},
    6.0: {"heads": [5, 4, 2, 0, 1, 1], "ffn": [512, 448, 384, 192, 0, 0]},
}
"""Heads and neurons by the speed-up that they are for."""


def searched(**options: Any) -> dict[str, Any]:
    """What `auto` leaves behind, with these `options`; the distilled model of 5.3 × is chosen."""
    plain = [
        candidate(f"{calibrator}128-embeddings", "ptq+embeddings", None, 2.9, drop, 0.99 - drop, 23_200_000)
        for calibrator, drop in (("mse", 0.002), ("KL", 0.005), ("min_max", -0.002))
    ]
    drops = {3.9: 0.004, 5.3: 0.021, 6.0: 0.034}
    pruned = [
        candidate(f"speedup_{target:g}-mse128-embeddings", "prune+ptq+embeddings", f"speedup_{target:g}",
                  0.99 * target, drop, 0.97 - drop, round(23e6 - 2e6 * target))
        for target, drop in drops.items()
    ]  # fmt: skip
    best = candidate("speedup_5.3-dynabert-mse128-embeddings", "prune+dynabert+ptq+embeddings", "speedup_5.3-dynabert",
                     5.26, 0.006, 0.955, 12_400_000)  # fmt: skip
    for shown in (*plain, *pruned):
        slower = f"slower by {100 * (best['speedup']['ratio'] / shown['speedup']['ratio'] - 1):.0f} %"
        shown["why_not"] = "drop above --max_drop" if shown["drop"] > 0.01 else slower
    best["why_not"] = None
    rungs = [("ptq+embeddings", [candidate["name"] for candidate in plain], 0.6)]
    rungs += [(f"prune+ptq+embeddings at {drop:g} ×", [f"speedup_{drop:g}-mse128-embeddings"], 2.04) for drop in drops]
    rungs += [("prune+dynabert+ptq+embeddings at 5.3 ×", [best["name"]], 11.3)]
    return {
        "tersely_version": "0.2", "model": "mrpc", "task": "sequence_classification", "metric": "accuracy",
        "best": best["name"], "rule": "Of each model one.", "rows": {"scoring": 204, "chosen_on": "eval rows"},
        "cpu": {"class": "vnni", "name": "CPU", "threads_of_timings": 1}, "max_drop": 0.01, "met_max_drop": True,
        "fp32": {"score": 0.8186, "interval": [0.77, 0.86], "size": 90_900_000, "shape": FULL,
                 "engine_by_batch": {"1": "onnxruntime", "16": "openvino"}},
        "target": {"batch": 16, "length": 53, "threads": 1, "missed": {}},
        "rungs": [{"title": title, "names": names, "minutes": minutes} for title, names, minutes in rungs],
        "not_tried": ["qat+embeddings"], "latency_tables": [], "pareto": [],
        "pruned": [*map(model, SHAPES), {**model(5.3, "-dynabert"), "torch_score": 0.815, "step": 230}],
        "candidates": [*plain, *pruned, best],
        "settings": {"options": {"strategy": ["auto"], "target_speedup": None, "max_drop": None, **options}},
    }  # fmt: skip


def candidate(
    name: str, strategy: str, model: str | None, speed: float, drop: float, same: float, size: int
) -> dict[str, Any]:
    """A candidate whose interval reaches two points to both sides."""
    return {
        "name": name, "strategy": strategy, "model": model, "engine": "onnxruntime", "size": size,
        "score": 0.8186 - drop, "interval": [0.76, 0.86], "drop": drop, "drop_interval": [drop - 0.02, drop + 0.02],
        "same_answer": same, "mean_abs_logit_change": 0.06, "pareto": "dynabert" in strategy or drop < 0,
        "speed_by_batch": {"1": {"ratio": 0.8 * speed}, "16": {"ratio": 0.9 * speed}}, "speedup": {"ratio": speed},
    }  # fmt: skip


def model(target: float, more: str = "") -> dict[str, Any]:
    """A model that was pruned for a speed-up."""
    shot = {"target": target, "method": "fisher", "change": 0.2, "expected": 1.01 * target, "seen": 0.985 * target}
    shape = {"version": 2, **SHAPES[target], "layers": FULL["layers"]}
    return {"name": f"speedup_{target:g}{more}", "shape": shape, "shot": shot, "size": 40_000_000}
