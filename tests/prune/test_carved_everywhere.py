"""Whatever takes a model folder takes a carved one: export, engines, evaluate, finetune, compress, INT8 in torch."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import pytest

import tersely
from learnable import rows, single, tsv
from models import build
from prunable_batches import batch_for, logits, off
from tersely.cli import main
from tersely.engines import load
from tersely.graphs.export import difference, export_onnx
from tersely.models.carve import carve, shape_for, shape_of
from tersely.models.families import find
from tersely.models.torch_folder import load_module
from tersely.prune import save_carved
from tersely.quantize.write_torch_dynamic import write_dynamic

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_timings")]

# One of each build: roberta, xlm_roberta, ernie, electra and camembert are bert's.
BUILDS = ("bert", "distilbert", "mpnet", "deberta_v2", "albert", "modernbert")


def carved_folder(full: Path, output: Path, width: str = "1/2", depth: str = "2/3") -> Path:
    model = load_module(full)
    shape = shape_for(shape_of(model, find(model)), Fraction(width), Fraction(depth))
    return save_carved(carve(model, find(model), shape), output, source=full)


@pytest.mark.parametrize("name", BUILDS)
def test_engines_give_the_carved_models_logits(prunable, tmp_path, name):
    folder = carved_folder(prunable(name), tmp_path / "carved")
    export_onnx(folder, tmp_path / "model.onnx")
    model = load_module(folder)
    batches = [
        {key: value.numpy() for key, value in batch_for(model, lengths).items()}
        for lengths in ((12, 7, 3), (1,), (40,))
    ]
    for engine in ("onnxruntime", *(["openvino"] if find_spec("openvino") else [])):
        assert difference(model, load(engine, tmp_path / "model.onnx", threads=1), batches)[0] < 1e-4, engine


@pytest.fixture(scope="module")
def carved(tmp_path_factory) -> Path:
    """A bert of layers wide enough for INT8, carved to half its width."""
    place = tmp_path_factory.mktemp("everywhere")
    names = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    full = build(place / "full", hidden=128, heads=4, layers=2, std=0.1, intermediate_size=256, **names)
    return carved_folder(full, place / "carved", depth="1")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return tsv(tmp_path_factory.mktemp("rows") / "text.tsv", rows(single, 40))


def run(capsys, *words) -> dict:
    capsys.readouterr()
    code = main([str(word) for word in words])
    caught = capsys.readouterr()
    assert code == 0, caught.err
    return json.loads(caught.out)


def test_export_and_evaluate_agree(carved, text, tmp_path, capsys):
    run(capsys, "export", "--model_name_or_path", carved, "--output_dir", tmp_path / "artifact", "--json")
    scored = run(
        capsys,
        "evaluate",
        "--model_name_or_path",
        tmp_path / "artifact",
        "--eval_file",
        text,
        "--against",
        carved,
        "--json",
    )
    assert scored["same_answer"] == 1
    assert scored["mean_abs_logit_change"] < 1e-4


def test_compress_starts_from_it(carved, text, tmp_path, capsys):
    done = run(
        capsys, "compress", "--model_name_or_path", carved, "--train_file", text, "--eval_file", text,
        "--strategy", "ptq", "--algo_list", "mse", "--output_dir", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done["candidates"]
    assert tersely.runtime.load(tmp_path / "out" / "best").predict("A film of quiet grace.")


def test_finetune_goes_on_with_it_and_writes_a_carved_folder(carved, text, tmp_path, capsys):
    run(
        capsys, "finetune", "--model_name_or_path", carved, "--train_file", text, "--eval_file", text,
        "--output_dir", tmp_path / "tuned", "--max_steps", "2", "--json",
    )  # fmt: skip
    before, after = load_module(carved), load_module(tmp_path / "tuned")
    assert shape_of(after, find(after)) == shape_of(before, find(before))
    assert off(logits(before, batch_for(before)), logits(after, batch_for(before))) > 0


def test_int8_layers_in_torch(carved, tmp_path):
    report = write_dynamic(carved, tmp_path / "int8")
    quantized, full = tersely.load_model(tmp_path / "int8"), load_module(carved)
    assert len(report.layers) > 4
    assert off(logits(quantized, batch_for(full)), logits(full, batch_for(full))) < 1.0
