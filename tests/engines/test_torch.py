"""Loading torch folders: what is refused, and that nothing global is left changed."""

from __future__ import annotations

import json
import logging
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from models import FAMILIES, HEADS, build
from tersely.engines import load
from tersely.engines.torch import input_names
from tersely.errors import UserError
from tersely.models.torch_folder import load_module


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return build(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "model")
    return tmp_path / "model"


def edit(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_what_is_not_a_model_folder_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match="no such model folder"):
        load_module(tmp_path / "absent")
    with pytest.raises(UserError, match="a model folder is expected"):
        load_module(folder / "config.json")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has no weights"):
        load_module(folder)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config.json"):
        load_module(folder)


@pytest.mark.parametrize("content", ["{", "[]", '{"model_type": "nonesuch", "architectures": ["X"]}'])
def test_broken_config_is_refused(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        load_module(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("architectures", [["BertForMaskedLM"], [], None])
def test_head_that_is_not_offered_is_refused(folder, architectures):
    config = json.loads((folder / "config.json").read_text()) | {"architectures": architectures}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="has no head that is offered"):
        load_module(folder)
    assert type(load_module(folder, head="SequenceClassification")).__name__ == "BertForSequenceClassification"


def test_nan_and_infinity_are_named(folder):
    edit(folder, lambda weights: weights["bert.pooler.dense.weight"][0].fill_(float("nan")))
    with pytest.raises(UserError, match=r"'bert.pooler.dense.weight' holds NaN"):
        load_module(folder)
    edit(folder, lambda weights: weights["bert.pooler.dense.weight"].fill_(float("inf")))
    with pytest.raises(UserError, match="holds infinite values"):
        load_module(folder)


def test_missing_weight_is_named_and_never_drawn_at_random(folder):
    edit(folder, lambda weights: weights.pop("classifier.weight"))
    with pytest.raises(UserError, match=r"lack 'classifier.weight'"):
        load_module(folder)


def test_weights_of_another_shape_are_refused(folder):
    edit(folder, lambda weights: weights.update({"classifier.weight": torch.zeros(7, 32)}))
    with pytest.raises(UserError, match="cannot be loaded"):
        load_module(folder)


def test_truncated_weights_are_refused(folder):
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(UserError, match="cannot be loaded"):
        load_module(folder)


class Evil:
    def __reduce__(self):
        return (print, ("this must never run",))


def test_pickles_load_as_tensors_only(folder, capsys):
    weights = load_file(folder / "model.safetensors")
    expected = load_module(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    found = load_module(folder).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    torch.save(weights | {"evil": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_module(folder)
    assert "never run" not in capsys.readouterr().out


def test_loading_prints_nothing_and_leaves_settings_alone(folder, capfd):
    log = transformers.utils.logging
    before = (log.get_verbosity(), log.is_progress_bar_enabled(), torch.get_default_dtype(), logging.root.level)
    load_module(folder, head="TokenClassification")
    assert (log.get_verbosity(), log.is_progress_bar_enabled(), torch.get_default_dtype(), logging.root.level) == before
    out, err = capfd.readouterr()
    assert out + err == ""


def test_half_precision_weights_load_as_floats(folder):
    edit(folder, lambda weights: weights.update({name: tensor.half() for name, tensor in weights.items()}))
    assert {p.dtype for p in load_module(folder).parameters()} == {torch.float32}


def test_live_module_keeps_its_modes(bert):
    module = load_module(bert).train()
    module.bert.encoder.eval()
    modes = [part.training for part in module.modules()]
    engine = load("torch", module, threads=1)
    batch = {name: np.ones((2, 5), np.int64) for name in engine.inputs}
    assert np.array_equal(engine.run(batch)[0], engine.run(batch)[0])  # no dropout
    assert [part.training for part in module.modules()] == modes


@pytest.mark.parametrize("family", FAMILIES)
def test_segments_are_an_input_only_where_they_matter(family, tmp_path):
    module = load_module(build(tmp_path, family))
    assert ("token_type_ids" in input_names(module)) == (family in {"bert", "ernie", "electra", "albert"})


@pytest.mark.parametrize("head", HEADS)
def test_outputs_follow_the_head(head, tmp_path):
    engine = load("torch", load_module(build(tmp_path, head=head)), threads=1)
    outputs = engine.run({name: np.ones((2, 5), np.int64) for name in engine.inputs})
    shapes = {"SequenceClassification": [(2, 3)], "TokenClassification": [(2, 5, 3)], "QuestionAnswering": [(2, 5)] * 2}
    assert [output.shape for output in outputs] == shapes[head]
    assert len(engine.outputs) == len(outputs)
