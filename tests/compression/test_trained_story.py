"""Compress runs that train for INT8: from the command line, of pruned models, with what is shared and what is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tersely
from folders import digests
from tersely import runtime
from tersely.cli import main
from tersely.compression import make_parents
from tersely.compression.output import WORK
from tersely.errors import UserError
from tersely.measure.check import check
from tersely.options.compress import CompressOptions
from widths import learnt

WIDTH = "width_mult_0.75"
STRATEGIES = (
    "qat", "qat+embeddings", "ptq", "dynabert+qat", "dynabert+qat+embeddings", "prune_embeddings+qat",
    "prune_embeddings+dynabert+qat",
)  # fmt: skip
NAMES = {
    "qat", "qat-embeddings", "min_max64", f"{WIDTH}-qat", f"{WIDTH}-qat-embeddings", "prune_embeddings-qat",
    f"prune_embeddings-{WIDTH}-qat",
}  # fmt: skip
QUICK: dict[str, Any] = {
    "learning_rate": 1e-3, "max_steps": 4, "save_steps": 2, "engines": "onnxruntime", "algo_list": "min_max",
    "calibration_rows": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    learnt(place, hidden=64)
    return place


def run(folder: Path, output: Path, **options: Any) -> Any:
    files = {"train_file": folder / "train.jsonl", "eval_file": folder / "dev.jsonl"}
    return tersely.compress(folder / "model", output_dir=output, **{**files, **QUICK, **options})


@pytest.mark.slow
def test_every_strategy_in_one_call_trains_each_model_once(folder, tmp_path):
    before = digests(folder / "model")
    calls: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        real = make_parents.train_int8

        def counted(*inputs: Any, **named: Any) -> Any:
            calls.append(inputs[0].work)
            return real(*inputs, **named)

        patch.setattr(make_parents, "train_int8", counted)
        result = run(folder, tmp_path, strategy=STRATEGIES)
    assert {measured.name for measured in result.candidates} | set(result.same) == NAMES
    assert sorted(work.name for work in calls) == sorted(
        ["qat", f"{WIDTH}-qat", "vocabulary-qat", f"prune_embeddings-{WIDTH}-qat"]
    )
    assert before == digests(folder / "model")
    content = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert {model["name"] for model in content["pruned"]} == {WIDTH, "vocabulary", f"prune_embeddings-{WIDTH}"}
    assert [model["model"] for model in content["trained"]].count(None) == 1
    assert not (tmp_path / WORK).exists()
    for name in NAMES - set(result.same):
        place = tmp_path / "candidates" / name
        assert {replay.verdict for replay in check(place)} == {"ok"}, name
    scores = {measured.name: measured.score.value for measured in result.candidates}
    torch_score = next(model["torch_score"] for model in content["trained"] if model["model"] is None)
    # One row of 50: single codes may flip between torch and the engine.
    assert scores["qat"] == pytest.approx(torch_score, abs=0.021)


@pytest.mark.slow
def test_command_line_trains_and_writes_an_artifact(folder, tmp_path, capfd):
    words = ["--strategy", "qat", "--train_file", folder / "train.jsonl", "--eval_file", folder / "dev.jsonl"]
    words += [word for name, value in QUICK.items() for word in (f"--{name}", value)]
    words += ["--moving_rate", "0.8", "--output_dir", tmp_path / "out"]
    assert main(["compress", "--model_name_or_path", str(folder / "model"), *map(str, words)]) == 0
    assert "qat" in capfd.readouterr().out
    (answer,) = runtime.load(tmp_path / "out" / "best").predict(["the quick grace"])
    assert answer
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "best",
        "candidates",
        "report.html",
        "report.md",
        "result.json",
    ]


@pytest.mark.slow
def test_ranges_at_run_time_are_exported_as_dynamics_graph_and_said_so(folder, tmp_path):
    result = run(folder, tmp_path, strategy="qat", activation_quantize_type="abs_max", max_steps=2)
    assert any("qat is exported as the graph of dynamic" in note for note in result.notes)
    place = tmp_path / "candidates" / "qat"
    assert "taken from each batch" in (place / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    assert not (place / "onnx" / "model_signed.onnx").exists()


@pytest.mark.slow
def test_a_drop_too_large_has_trained_layers_left_float_one_after_another(folder, tmp_path):
    spoil(folder, tmp_path / "spoilt")
    how = {"weight_quantize_type": "abs_max", "smooth": "off", "max_drop": 0.0}
    result = run(tmp_path / "spoilt", tmp_path / "out", strategy="qat", learning_rate=1e-6, max_steps=1, **how)
    names = [measured.name for measured in result.candidates]
    assert names == ["qat", *(f"qat-float{number}" for number in range(1, len(names)))]
    layers = [len(measured.candidate.quant_map.layers) for measured in result.candidates]
    assert layers == [layers[0] - number for number in range(len(names))]
    drops = [measured.comparison.drop.drop for measured in result.candidates]
    assert all(drop > 0 for drop in drops[:-1])
    assert result.met == (drops[-1] <= 0)
    assert len(names) > 1
    assert all(runtime.load(tmp_path / "out" / "candidates" / name).predict(["the quick grace"]) for name in names)


def spoil(folder: Path, place: Path) -> None:
    """The same model in floats, but with values so far apart that one scale for all of a layer rounds most to 0."""
    shutil.copytree(folder, place)
    weights = load_file(place / "model" / "model.safetensors")
    drawn = np.random.default_rng(3)
    for name in [name for name in weights if name.endswith("attention.self.value.weight")]:
        layer = name.removesuffix("self.value.weight")
        factor = (10.0 ** drawn.uniform(-3, 3, len(weights[name]))).astype(np.float32)
        weights[name] = weights[name] * factor[:, None]
        weights[f"{layer}self.value.bias"] = weights[f"{layer}self.value.bias"] * factor
        weights[f"{layer}output.dense.weight"] = weights[f"{layer}output.dense.weight"] / factor
    save_file(weights, place / "model" / "model.safetensors", {"format": "pt"})


@pytest.mark.slow
def test_trained_layers_that_do_harm_are_found_by_themselves(folder, tmp_path):
    result = run(folder, tmp_path, strategy="qat", skip_layers="auto", max_steps=2)
    assert set(result.sensitivity) >= set(result.best.candidate.quant_map.layers)
    assert len(result.sensitivity) > 1


@pytest.mark.slow
def test_a_teacher_of_ones_own_teaches(folder, tmp_path):
    result = run(folder, tmp_path, strategy="qat", teacher_model_name_or_path=str(folder / "model"), max_steps=2)
    assert result.best.name == "qat"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"strategy": "qat", "quantize_attention": "on"},
            "'quantize_attention' option .* no effect",
        ),
        ({"strategy": "qat", "round_type": "adaround"}, "It is for ptq"),
        ({"strategy": "qat", "activation_quantize_type": "abs_max", "use_pact": True}, "clips nothing"),
        (
            {"strategy": "qat", "training_args": {"gradient_checkpointing": True}},
            "no effect on quantization-aware training",
        ),
        ({"strategy": "qat", "distill_logits": 0, "label_loss": 0}, "nothing is learnt by qat"),
        ({"strategy": "qat", "train_file": None}, "needs training rows"),
        ({"strategy": "qat", "eval_file": None}, "needs eval rows"),
        (
            {"strategy": "prune_embeddings+qat", "teacher_model_name_or_path": "model"},
            "cannot be used where the vocabulary is cut",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(folder, tmp_path, options, said):
    if "teacher_model_name_or_path" in options:
        options = {**options, "teacher_model_name_or_path": str(folder / "model")}
    with pytest.raises(UserError, match=said):
        run(folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_losses_have_defaults_of_the_steps_own():
    both = CompressOptions(strategy="dynabert+qat")
    assert both.losses("dynabert")["label_loss"] == 0.0
    assert both.losses("qat") == {
        "distill_hidden": 0.0, "distill_logits": 1.0, "distill_temperature": 1.0, "label_loss": 1.0,
    }  # fmt: skip
    assert CompressOptions(label_loss=0.5).losses("dynabert")["label_loss"] == 0.5
    assert np.isclose(both.losses("dynabert")["distill_hidden"], 0.1)
