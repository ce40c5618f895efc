"""Dynamic INT8 in torch: the layer against NumPy, the folder in another process, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import tersely
from models import FAMILIES, build
from tersely.errors import Failure, UserError
from tersely.models.folder import open_folder
from tersely.models.load import MANIFEST
from tersely.models.torch_dynamic import WEIGHTS, DynamicLinear
from tersely.quantize.weights import quantize_weight
from tersely.quantize.write_torch_dynamic import DynamicReport, write_dynamic

KINDS = ("channel_wise_abs_max", "abs_max")
RANDOM = np.random.default_rng(3)
IDS = torch.tensor(RANDOM.integers(5, 60, (8, 24)))
FEED = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A model whose layers have 64 outputs or more: those with fewer stay float."""
    made: dict[tuple[str, str], Path] = {}

    def make(family: str = "bert", head: str = "SequenceClassification") -> Path:
        if (family, head) not in made:
            folder = tmp_path_factory.mktemp("sources") / f"{family}-{head}"
            made[family, head] = build(folder, family, head, hidden=64, std=0.1)
        return made[family, head]

    return make


@pytest.fixture(scope="module")
def written(
    model_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., DynamicReport]:
    """What became of such a model. Not to be written to: see `own`."""
    made: dict[tuple[str, str], DynamicReport] = {}

    def make(family: str = "bert", head: str = "SequenceClassification") -> DynamicReport:
        if (family, head) not in made:
            output = tmp_path_factory.mktemp("written") / f"{family}-{head}"
            made[family, head] = write_dynamic(model_folder(family, head), output)
        return made[family, head]

    return make


@pytest.fixture
def own(written: Callable[..., DynamicReport], tmp_path: Path) -> Path:
    """A copy of a quantized folder, to be damaged."""
    return Path(shutil.copytree(written().folder, tmp_path / "own"))


@pytest.fixture(params=torch.backends.quantized.supported_engines)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before


def logits(model: Any) -> Any:
    with torch.inference_mode():
        return model(**FEED).logits.numpy()


def tree(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def edit(folder: Path, **entries: Any) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**content, **entries}))


def reseal(folder: Path, name: str) -> None:
    """Let the manifest vouch for a file as it is now."""
    files = json.loads((folder / MANIFEST).read_text())["files"]
    edit(folder, files={**files, name: hashlib.sha256((folder / name).read_bytes()).hexdigest()})


def dynamic_reference(inputs: Any, integers: Any, scales: Any, bias: Any) -> Any:
    """Dynamic quantization as the textbooks have it: u8 codes over the batch's range, sums in wide integers."""
    low, high = min(inputs.min(), 0.0), max(inputs.max(), 0.0)
    step = np.float32((np.float64(high) - np.float64(low)) / 255)
    zero = round(float(-low / step))
    codes = np.clip(np.rint(inputs / step) + zero, 0, 255).astype(np.int64) - zero
    return (codes @ integers.astype(np.int64).T) * np.float64(step) * scales.astype(np.float64) + bias


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 64, 1), (5, 31, 7), (17, 129, 33), (40, 384, 96)], ids=str)
def test_layer_equals_a_plain_dynamic_quantization(shape, kind, engine):
    rows, width, outputs = shape
    random = np.random.default_rng(width)
    weight = (random.normal(size=(width, outputs)) * random.uniform(0.1, 3, outputs)).astype(np.float32)
    quantized = quantize_weight(weight, kind)
    inputs = random.normal(size=(rows, width)).astype(np.float32) + np.float32(0.3)
    bias = random.normal(size=outputs).astype(np.float32)
    integers = np.ascontiguousarray(quantized.integers.T)
    layer = DynamicLinear(torch.tensor(integers), torch.tensor(quantized.scales), torch.tensor(bias))
    expected = dynamic_reference(inputs, integers, quantized.scales, bias)
    got = layer(torch.tensor(inputs)).numpy()
    # A value half-way between two codes may go either way: one step of one input, times the largest weight.
    step = np.ptp(np.append(inputs, 0)) / 255 * np.abs(weight).max()
    assert np.abs(got - expected).max() <= 1.01 * step
    assert np.abs(got - expected).mean() <= 0.02 * step
    lengths = np.linalg.norm(inputs, axis=1).mean() * np.linalg.norm(weight, axis=0).mean()
    assert np.abs(got - (inputs @ weight + bias)).mean() < 0.01 * lengths


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [2, 63, 256])
def test_layer_does_not_saturate_where_weights_and_inputs_are_at_their_ends(width, kind, engine):
    # Without VNNI 255 · 127 + 255 · 127 is cut off at 32767: half of every pair would be lost.
    weight = np.ones((width, 8), np.float32)
    weight[:, ::2] *= -1
    weight[:, 2:4] *= np.where(np.arange(width) % 4 < 2, 1, -1)[:, None]
    quantized = quantize_weight(weight, kind)
    layer = DynamicLinear(torch.tensor(quantized.integers.T.copy()), torch.tensor(quantized.scales))
    inputs = np.ones((6, width), np.float32)
    inputs[3:] = -1
    inputs[5, ::2] = 1
    np.testing.assert_allclose(layer(torch.tensor(inputs)).numpy(), inputs @ weight, atol=0.013 * width)


def test_layer_gives_out_what_it_was_made_of(engine):
    integers, bias = torch.tensor([[100, -28, 3], [4, 5, -127]], dtype=torch.int8), torch.tensor([0.5, -2.0])
    for scales in (torch.tensor([0.1, 0.003]), torch.tensor([0.2])):
        state = DynamicLinear(integers, scales, bias).state_dict()
        assert sorted(state) == ["bias", "integers", "scales"]
        assert torch.equal(state["integers"], integers)
        assert torch.equal(state["scales"], scales)
        assert torch.equal(state["bias"], bias)
    assert "bias" not in DynamicLinear(integers, scales).state_dict()


def test_layer_keeps_its_kernels_when_the_engine_changes_and_when_copied():
    layer = DynamicLinear(torch.randint(-60, 60, (9, 16), dtype=torch.int8), torch.full((9,), 0.1))
    inputs = torch.randn(3, 2, 16)
    expected = layer(inputs)
    before = torch.backends.quantized.engine
    try:
        for other in torch.backends.quantized.supported_engines:
            torch.backends.quantized.engine = other
            assert torch.equal(layer(inputs), expected)
    finally:
        torch.backends.quantized.engine = before
    assert torch.equal(copy.deepcopy(layer)(inputs), expected)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(inputs), expected)  # noqa: S301
    assert layer(inputs.bfloat16()).dtype == torch.bfloat16
    assert "in_features=16, out_features=9" in repr(layer)


@pytest.mark.parametrize(
    ("integers", "scales"), [(torch.zeros(2, 3), torch.ones(2)), (torch.zeros(2, 3, dtype=torch.int8), torch.ones(3))]
)
def test_layer_of_other_types_or_shapes_is_refused(integers, scales):
    with pytest.raises(ValueError, match="Expected int8 integers"):
        DynamicLinear(integers, scales)


def test_bias_that_does_not_fit_says_which_kernels_refused_it():
    with pytest.raises(UserError, match=r"cannot run INT8 layers here: .*torch.backends.quantized.engine is '"):
        DynamicLinear(torch.zeros(2, 3, dtype=torch.int8), torch.ones(2), torch.zeros(3))


MAIN = ("bert", "roberta", "deberta_v2")


@pytest.mark.slow
def test_other_process_gives_the_same_bits_and_no_warnings(written, tmp_path):
    folders = [str(written(family).folder) for family in MAIN]
    np.save(tmp_path / "ids.npy", IDS.numpy())
    code = """
import sys, numpy, torch, tersely
ids = torch.tensor(numpy.load(sys.argv[1] + "/ids.npy"))
generator, engine = torch.get_rng_state(), torch.backends.quantized.engine
for number, folder in enumerate(sys.argv[2:]):
    model = tersely.load_model(folder)
    assert not model.training and "onnx" not in sys.modules
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    numpy.save(f"{sys.argv[1]}/{number}.npy", logits.numpy())
assert torch.equal(generator, torch.get_rng_state()) and torch.backends.quantized.engine == engine
"""
    command = [sys.executable, "-W", "error::UserWarning", "-c", code, str(tmp_path), *folders]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for number, folder in enumerate(folders):
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), logits(tersely.load_model(folder)))


@pytest.mark.parametrize("family", MAIN)
def test_logits_stay_close_to_fp32(model_folder, written, family):
    before, after = logits(tersely.load_model(model_folder(family))), logits(tersely.load_model(written(family).folder))
    assert 0 < np.abs(after - before).max() < 0.05 * np.ptp(before)
    margins = np.diff(np.sort(before, axis=1)[:, -2:])[:, 0]
    sure = margins > 2 * np.abs(after - before).max()
    assert sure.sum() >= 4
    np.testing.assert_array_equal(after.argmax(1)[sure], before.argmax(1)[sure])


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(MAIN)))
def test_every_family_is_written_and_read(model_folder, written, family):
    before, after = logits(tersely.load_model(model_folder(family))), logits(tersely.load_model(written(family).folder))
    assert 0 < np.abs(after - before).max() < 0.06 * np.ptp(before)


@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_other_heads_stay_close_to_fp32(model_folder, written, head):
    module, quantized = tersely.load_model(model_folder("bert", head)), tersely.load_model(written("bert", head).folder)
    with torch.inference_mode():
        for before, after in zip(module(**FEED).to_tuple(), quantized(**FEED).to_tuple(), strict=True):
            assert 0 < float((after - before).abs().max()) < 0.05 * float(before.max() - before.min())


def test_batches_share_a_range_and_nothing_else(written):
    model = tersely.load_model(written().folder)
    first = torch.tensor(RANDOM.integers(5, 60, (1, 24)))
    with torch.inference_mode():
        alone, thrice = model(first).logits, model(first.repeat(3, 1)).logits
    np.testing.assert_allclose(thrice.numpy(), alone.repeat(3, 1).numpy(), atol=1e-6)


def test_file_holds_integers_and_everything_else_as_it_was(model_folder, written):
    report = written()
    before, after = load_file(model_folder() / "model.safetensors"), load_file(report.folder / WEIGHTS)
    integers = {name for name, tensor in after.items() if tensor.dtype == torch.int8}
    assert integers == {f"{name}.integers" for name in report.layers}
    assert len(integers) == 2 * 6 + 1
    assert report.left_float == {"classifier": "small"}
    assert {name.replace(".integers", ".weight") for name in after} - set(before) == {
        f"{n}.scales" for n in report.layers
    }
    for name in report.layers:
        weight, scales = before.pop(f"{name}.weight"), after.pop(f"{name}.scales")
        assert after[f"{name}.integers"].shape == weight.shape
        assert scales.shape == weight.shape[:1]
        lost = (after.pop(f"{name}.integers") * scales[:, None] - weight).abs()
        assert bool((lost <= scales[:, None]).all())
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    saved = 3 * sum(tersely.load_model(model_folder()).get_submodule(name).weight.numel() for name in report.layers)
    assert report.bytes_before == (model_folder() / "model.safetensors").stat().st_size
    assert report.bytes_after == (report.folder / WEIGHTS).stat().st_size
    assert report.bytes_before - report.bytes_after == pytest.approx(saved, rel=0.05)


def test_one_scale_per_tensor_on_demand(model_folder, tmp_path):
    report = write_dynamic(model_folder(), tmp_path / "out", weight_quantize_type="abs_max")
    tensors = load_file(report.folder / WEIGHTS)
    assert {tuple(tensors[f"{name}.scales"].shape) for name in report.layers} == {(1,)}
    before, after = logits(tersely.load_model(model_folder())), logits(tersely.load_model(report.folder))
    assert 0 < np.abs(after - before).max() < 0.08 * np.ptp(before)


def test_same_bytes_when_written_twice(model_folder, written, tmp_path):
    assert tree(write_dynamic(model_folder(), tmp_path / "again").folder) == tree(written().folder)


def test_source_and_torch_stay_as_they_were(model_folder, tmp_path):
    before, stamps = tree(model_folder()), {path.name: path.stat().st_mtime_ns for path in model_folder().iterdir()}
    state = torch.get_rng_state(), torch.backends.quantized.engine, torch.get_num_threads(), torch.get_default_dtype()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tersely.load_model(write_dynamic(model_folder(), tmp_path / "out").folder)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (torch.backends.quantized.engine, torch.get_num_threads(), torch.get_default_dtype()) == state[1:]
    assert tree(model_folder()) == before
    assert {path.name: path.stat().st_mtime_ns for path in model_folder().iterdir()} == stamps


@pytest.mark.parametrize("patterns", ["*.query", ("*.query.weight",), ["*layer.0*query", "*layer.1*query"]])
def test_skipped_layers_stay_float(model_folder, tmp_path, patterns):
    report = write_dynamic(model_folder(), tmp_path / "out", skip_layers=patterns)
    skipped = {name for name, reason in report.left_float.items() if reason == "skipped"}
    assert skipped == {f"bert.encoder.layer.{number}.attention.self.query" for number in (0, 1)}
    model = tersely.load_model(report.folder)
    assert all(type(model.get_submodule(name)) is torch.nn.Linear for name in report.left_float)
    assert all(isinstance(model.get_submodule(name), DynamicLinear) for name in report.layers)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_patterns_that_fit_nothing_or_everything_are_refused(model_folder, tmp_path):
    with pytest.raises(UserError, match=r"No layer fits the pattern '\*querry'.*such as 'bert.encoder"):
        write_dynamic(model_folder(), tmp_path / "out", skip_layers=["*querry"])
    with pytest.raises(UserError, match="None of the 14 linear layers is left to quantize"):
        write_dynamic(model_folder(), tmp_path / "out", skip_layers=["*"])
    assert list(tmp_path.iterdir()) == []


def test_unknown_weight_type_is_refused(model_folder, tmp_path):
    with pytest.raises(UserError, match="Did you mean 'abs_max'"):
        write_dynamic(model_folder(), tmp_path / "out", weight_quantize_type="absmax")


def test_overwriting_takes_its_own_folder_and_no_other(model_folder, own):
    with pytest.raises(UserError, match="exists and is not empty"):
        write_dynamic(model_folder(), own)
    write_dynamic(model_folder(), own, weight_quantize_type="abs_max", overwrite=True)
    assert json.loads((own / MANIFEST).read_text())["weight_quantize_type"] == "abs_max"
    (own / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="files that Tersely did not write"):
        write_dynamic(model_folder(), own, overwrite=True)


def test_source_is_never_the_destination(model_folder, tmp_path):
    folder = Path(shutil.copytree(model_folder(), tmp_path / "source"))
    files = sorted(path.name for path in folder.iterdir())
    (folder / "tersely_task.json").write_text(json.dumps({"task": {}, "files": files}))
    with pytest.raises(UserError, match="is the model's own"):
        write_dynamic(folder, tmp_path / "x" / ".." / "source", overwrite=True)
    assert (folder / "model.safetensors").is_file()


def test_model_that_reaches_into_its_weights_is_refused_and_leaves_nothing(model_folder, tmp_path, monkeypatch):
    reach = transformers.models.bert.modeling_bert.BertPooler
    forward = reach.forward
    monkeypatch.setattr(reach, "forward", lambda self, hidden: forward(self, hidden * self.dense.weight.abs().max()))
    with pytest.raises(Failure, match=r"does not run with INT8 layers: .*'weight'"):
        write_dynamic(model_folder(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert (
        write_dynamic(model_folder(), tmp_path / "out", skip_layers=["*pooler*"]).left_float["bert.pooler.dense"]
        == "skipped"
    )


def test_task_and_tokenizer_travel(model_folder, tmp_path):
    folder = Path(shutil.copytree(model_folder(), tmp_path / "source"))
    notes = {"task": {"name": "sequence_classification", "max_seq_length": 48, "metric": "macro_f1"}, "files": []}
    (folder / "tersely_task.json").write_text(json.dumps(notes))
    (folder / "training_args.bin").write_bytes(b"not for others")
    report = write_dynamic(folder, tmp_path / "out")
    before, after = open_folder(folder), open_folder(report.folder)
    assert after.task == before.task
    assert after.task.max_seq_length == 48
    assert after.encoder.to_json() == before.encoder.to_json()
    listed = json.loads((report.folder / "tersely_task.json").read_text())["files"]
    assert sorted(listed) == sorted(path.name for path in report.folder.iterdir())
    assert "training_args.bin" not in listed


def test_plain_folder_is_loaded_as_transformers_does(model_folder):
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(model_folder()).eval()
    model = tersely.load_model(model_folder())
    np.testing.assert_array_equal(logits(model), logits(plain))
    assert not model.training
    assert not (model_folder() / MANIFEST).exists()
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_public_name_stays_a_function():
    from tersely import load_model

    assert tersely.load_model is tersely.load_model is load_model
    assert callable(load_model)


def test_base_install_says_what_to_install(model_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tersely.models.torch_dynamic", None)
    with pytest.raises(UserError, match=r"'torch' is not installed.*torch>="):
        tersely.load_model(model_folder())


def test_transformers_refuses_the_folder_instead_of_drawing_weights(written):
    with pytest.raises(OSError, match=r"no file named model.safetensors"):
        transformers.AutoModelForSequenceClassification.from_pretrained(written().folder)


def test_artifact_is_refused(tmp_path):
    (tmp_path / "tersely.json").write_text("{}")
    with pytest.raises(UserError, match=r"This is an artifact.*tersely.runtime.load"):
        tersely.load_model(tmp_path)


@pytest.mark.parametrize("version", [2, None, "1"])
def test_unknown_format_version_is_refused(own, version):
    edit(own, format_version=version)
    with pytest.raises(UserError, match=f"has format version {version}; this tersely reads version 1"):
        tersely.load_model(own)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "tokenizer.json", MANIFEST])
def test_missing_file_is_refused(own, name):
    (own / name).unlink()
    with pytest.raises(UserError, match=r"is missing|has no weights"):
        tersely.load_model(own)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "tokenizer.json"])
def test_changed_file_is_refused(own, name):
    content = bytearray((own / name).read_bytes())
    content[-3] ^= 1
    (own / name).write_bytes(bytes(content))
    with pytest.raises(UserError, match=f"The file '{name}' has changed since it was written"):
        tersely.load_model(own)


@pytest.mark.parametrize(
    ("content", "match"),
    [("{", "damaged"), ("[]", "format version None"), ('{"format_version": 1}', "lacks the entry 'architecture'")],
)
def test_damaged_manifest_is_refused(own, content, match):
    (own / MANIFEST).write_text(content)
    with pytest.raises(UserError, match=match):
        tersely.load_model(own)


@pytest.mark.parametrize("files", [{}, {"config.json": "0", WEIGHTS: "0", "../secret": "0"}])
def test_manifest_must_vouch_for_plain_names(own, files):
    edit(own, files=files)
    with pytest.raises(UserError, match=r"list of files is damaged|has changed"):
        tersely.load_model(own)


def test_manifest_that_names_other_things_is_refused(own):
    content = json.loads((own / MANIFEST).read_text())
    for architecture in ("BertForNothing", "pipeline"):
        edit(own, architecture=architecture)
        with pytest.raises(UserError, match=f"has no '{architecture}'"):
            tersely.load_model(own)
    edit(own, architecture=content["architecture"], layers=[*content["layers"], "classifier"])
    with pytest.raises(UserError, match=r"cannot be loaded: 'classifier.integers'"):
        tersely.load_model(own)
    edit(own, layers=content["layers"][1:])
    with pytest.raises(UserError, match="weights do not fit the config: missing"):
        tersely.load_model(own)


def test_config_of_another_size_is_refused(own):
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "intermediate_size": 256}))
    reseal(own, "config.json")
    with pytest.raises(UserError, match=r"cannot be loaded|do not fit"):
        tersely.load_model(own)
