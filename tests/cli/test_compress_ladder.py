"""A run to order as users type it: the ladder on the terminal, and the report of a model that was pruned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from report_page import check_reports
from tersely.compression.shape_timer import engine_versions
from tersely.engines.cpu import cpu
from widths import learnt

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_timings")]

ONNXRUNTIME_MSE = ("--engines", "onnxruntime", "--algo_list", "mse", "--calibration_rows", "64")
SETTING = ("--target_batch", "4", "--target_length", "12")


def latency_table(path: Path, config: dict[str, Any]) -> Path:
    """Times as if each sublayer took one of five milliseconds: to measure them takes minutes."""
    sizes = ("num_attention_heads", "intermediate_size", "num_hidden_layers")
    heads, neurons, layers = (config[name] for name in sizes)
    costs = {"heads": heads, "neurons": neurons, "last_heads": heads, "last_neurons": neurons}
    by_unit = {name: {"units": [0, 1, full], "seconds": [0.0, 1e-4, 1e-3]} for name, full in costs.items()}
    about = {
        "cpu": cpu().name, "cpu_class": cpu().cpu_class, "versions": engine_versions(), "engines": ["onnxruntime"],
        "precision": "fp32", "tables": "fp32", "products": "off", "smooth": "off",
        "model_type": config["model_type"], "hidden": config["hidden_size"],
        "heads": [heads] * layers, "neurons": [neurons] * layers, "outputs": ["logits"], "first_position": True,
        "batch": 4, "length": 12, "threads": 1,
    }  # fmt: skip
    path.write_text(json.dumps({"version": 1, "fp32": 5e-3, "full": 5e-3, **by_unit, "about": about}))
    return path


def test_run_to_order_ends_with_its_ladder(tersely: Tersely, tmp_path: Path) -> None:
    model = learnt(tmp_path, hidden=64).path
    rows = ("--train_file", tmp_path / "train.jsonl", "--eval_file", tmp_path / "dev.jsonl")
    table = latency_table(tmp_path / "table.json", json.loads((model / "config.json").read_text()))
    order = ("--strategy", "ptq", "--strategy", "prune", "--target_speedup", "1.2", "--latency_table", table)
    shown = tersely("compress", model, *rows, *order, *ONNXRUNTIME_MSE, *SETTING, "--output_dir", tmp_path / "out")
    assert (tmp_path / "out" / "result.json").is_file(), shown.err
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert shown.code == bool(content["target"]["missed"]), shown.err
    ladder = shown.out[shown.out.index("In the order in which it was tried") :].splitlines()
    lines = [line for line in ladder if line.startswith(("ptq", "prune"))]
    by_name = {candidate["name"]: candidate for candidate in content["candidates"]}
    (rung,) = content["rungs"]
    assert {by_name[name]["strategy"] for name in rung["names"]} == {"ptq", "prune"}
    names = {by_name[name]["strategy"]: name for name in rung["names"]}
    for title, name in (("ptq", names["ptq"]), ("prune at 1.2 ×", names["prune"])):
        (line,) = (line for line in lines if line.startswith((f"{title} ", f"{title},")))
        assert f" {by_name[name]['speedup']['ratio']:.2f} " in line
        assert ("chosen" in line) == (name == content["best"])
    for name in set(by_name) - {content["best"]}:
        assert f"  not {name}" in shown.out
    page = check_reports(tmp_path / "out")
    assert "What was tried" in [heading.text for heading in page.all("h2")]
    assert content["fp32"]["shape"]["heads"] == [4, 4]
    pruned = content["best"] == names["prune"]
    assert bool(list(page.all("figure", wanted="shape"))) == pruned
