"""Carved models as folders: read back by `load_model`, by Auto classes, by a fresh process; saved and carved again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForSequenceClassification

import tersely
from models import FAMILIES as NAMES
from models import HEADS
from prunable_batches import batch_for, logits, off
from tersely.errors import UserError
from tersely.models.carve import Shape, carve, shape_for, shape_of
from tersely.models.carve.model import carved_class
from tersely.models.families import find
from tersely.models.folder import open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import save_carved
from tersely.testing import check_family


def carved_from(folder, width="1/2", depth="2/3"):
    model = load_module(folder)
    return carve(model, find(model), shape_for(shape_of(model, find(model)), Fraction(width), Fraction(depth)))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Code that transformers copies from folders goes where no other test looks."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))


@pytest.mark.parametrize("name", NAMES)
def test_load_model_and_auto_class_give_back_the_carved_model(prunable, tmp_path, name):
    carved = carved_from(prunable(name))
    folder = save_carved(carved, tmp_path / "carved", source=prunable(name))
    batch = batch_for(carved)
    expected = logits(carved, batch)
    assert off(logits(tersely.load_model(folder), batch), expected) <= 1e-6
    auto = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    assert off(logits(auto, batch), expected) <= 1e-6
    assert (folder / "model.safetensors").stat().st_size < (prunable(name) / "model.safetensors").stat().st_size


@pytest.mark.parametrize("head", HEADS[1:])
def test_other_heads_come_back(prunable, tmp_path, head):
    carved = carved_from(prunable("xlm_roberta", head))
    folder = save_carved(carved, tmp_path / "carved")
    batch = batch_for(carved)
    auto = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder, trust_remote_code=True)
    for loaded in (tersely.load_model(folder), auto):
        assert off(logits(loaded, batch), logits(carved, batch)) <= 1e-6


def test_layers_of_different_sizes_come_back(prunable, tmp_path):
    model = load_module(prunable())
    carved = carve(model, find(model), Shape((6, 1, 4), (8, 96, 41), (0, 1, 2)))
    folder = save_carved(carved, tmp_path / "carved")
    assert off(logits(tersely.load_model(folder), batch_for(model)), logits(carved, batch_for(model))) <= 1e-6


def test_folder_says_its_shape_and_brings_tokenizer_and_task(prunable, tmp_path):
    folder = save_carved(carved_from(prunable()), tmp_path / "carved", source=prunable())
    config = json.loads((folder / "config.json").read_text())
    assert config["tersely_shape"] == {"version": 2, "heads": [3, 3], "ffn": [48, 48], "layers": [0, 1]}
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["num_hidden_layers"] == 2
    assert open_folder(folder).task == open_folder(prunable()).task
    assert len((folder / "modeling_tersely.py").read_text().splitlines()) < 10


def test_nothing_of_the_folder_is_executed(prunable, tmp_path):
    folder = save_carved(carved_from(prunable()), tmp_path / "carved", source=prunable())
    (folder / "modeling_tersely.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    model = tersely.load_model(folder)
    model.save_pretrained(tmp_path / "again")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("opened", ["load_model", "auto", "live"])
def test_carved_model_is_trained_saved_and_carved_again(prunable, tmp_path, opened):
    carved = carved_from(prunable())
    folder = save_carved(carved, tmp_path / "carved")
    if opened == "auto":
        model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    else:
        model = carved if opened == "live" else tersely.load_model(folder)
    batch = batch_for(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()(**batch, labels=torch.tensor([0, 1, 2])).loss.backward()
    optimizer.step()
    model.eval()
    assert off(logits(model, batch), logits(tersely.load_model(folder), batch)) > 1e-4
    model.save_pretrained(tmp_path / "trained")
    trained = tersely.load_model(tmp_path / "trained")
    assert off(logits(trained, batch), logits(model, batch)) <= 1e-6
    if opened != "live":  # a live model's class is transformers' own, which knows nothing of Tersely's code
        auto = AutoModelForSequenceClassification.from_pretrained(tmp_path / "trained", trust_remote_code=True)
        assert off(logits(auto, batch), logits(model, batch)) <= 1e-6
    smaller = carve(trained, find(trained), shape_for(shape_of(trained, find(trained)), Fraction(1, 3)))
    twice = tersely.load_model(save_carved(smaller, tmp_path / "smaller"))
    assert shape_of(twice, find(twice)).heads == (1, 1)
    assert off(logits(twice, batch), logits(smaller, batch)) <= 1e-6


def test_opening_one_leaves_other_models_of_its_class_as_they_are(prunable, tmp_path):
    folder = save_carved(carved_from(prunable()), tmp_path / "carved")
    AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    plain = AutoModelForSequenceClassification.from_pretrained(prunable())
    assert type(plain) is transformers.BertForSequenceClassification
    ours = carved_class(transformers.BertForSequenceClassification).from_pretrained(prunable())
    ours.save_pretrained(tmp_path / "plain")
    assert not (tmp_path / "plain" / "modeling_tersely.py").exists()


def test_without_trust_transformers_says_that_sizes_do_not_fit(prunable, tmp_path):
    folder = save_carved(carved_from(prunable()), tmp_path / "carved")
    with pytest.raises(RuntimeError, match="size"):
        AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=False)


def test_carved_classes_pickle():
    import pickle

    kind = carved_class(transformers.RobertaForTokenClassification)
    assert pickle.loads(pickle.dumps(kind)) is kind  # noqa: S301
    assert issubclass(kind, transformers.RobertaForTokenClassification)


DAMAGES = {
    "format version 9; this tersely reads versions 1 to 2": {"version": 9},
    "The shape: 'heads' must be": {"heads": ["x", 3]},
    "The shape has 7 heads in layer 0; the model has 6": {"heads": [7, 7]},
    "the config says that there are 2": {"heads": [3], "ffn": [48], "layers": [0]},
    "The model cannot be loaded": {"heads": [2, 2]},
}


@pytest.mark.parametrize("message", DAMAGES)
def test_damaged_shape_is_refused(prunable, tmp_path, message):
    folder = save_carved(carved_from(prunable()), tmp_path / "carved")
    config = json.loads((folder / "config.json").read_text())
    config["tersely_shape"] |= DAMAGES[message]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        tersely.load_model(folder)


def test_infinite_weights_and_occupied_folders_are_refused(prunable, tmp_path):
    carved = carved_from(prunable())
    save_carved(carved, tmp_path / "carved")
    with pytest.raises(UserError, match="exists and is not empty"):
        save_carved(carved, tmp_path / "carved")
    save_carved(carved, tmp_path / "carved", overwrite=True)
    with torch.no_grad():
        carved.classifier.weight[0, 0] = torch.inf
    with pytest.raises(UserError, match=r"'classifier\.weight' holds infinite values"):
        save_carved(carved, tmp_path / "carved", overwrite=True)
    assert tersely.load_model(tmp_path / "carved")


def test_model_that_was_not_carved_is_refused_and_left_alone(prunable, tmp_path):
    model = load_module(prunable())
    with pytest.raises(UserError, match="it was not carved"):
        save_carved(model, tmp_path / "full")
    assert not hasattr(model.config, "tersely_shape")
    assert not (tmp_path / "full").exists()


class Pointers(transformers.ErniePreTrainedModel):
    """As UIE has it: an encoder, and a sigmoid for the start and one for the end of a span."""

    def __init__(self, config) -> None:
        super().__init__(config)
        self.ernie = transformers.ErnieModel(config, add_pooling_layer=False)
        self.start, self.end = nn.Linear(config.hidden_size, 1), nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(self, input_ids, token_type_ids=None, attention_mask=None):
        states = self.ernie(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)[0]
        return torch.sigmoid(self.start(states)[..., 0]), torch.sigmoid(self.end(states)[..., 0])


def test_model_of_ones_own_is_carved_saved_and_loaded(prunable, tmp_path):
    config = transformers.AutoConfig.from_pretrained(prunable("ernie"))
    model = Pointers(config).eval()
    check_family(find(model), model)
    carved = carve(model, find(model), shape_for(shape_of(model, find(model)), Fraction(1, 2)))
    folder = save_carved(carved, tmp_path / "carved")
    batch = {"input_ids": torch.arange(5, 15)[None]}
    with torch.no_grad():
        expected, loaded = carved(**batch), tersely.load_model(folder, model_class=Pointers)(**batch)
    assert max(off(output, other) for output, other in zip(expected, loaded, strict=True)) <= 1e-6
    with pytest.raises(UserError, match="'Pointers', which has no head that is offered"):
        tersely.load_model(folder)


FRESH = """
import json, sys, torch, transformers, tersely
how, *folders = sys.argv[1:]
ids = torch.arange(5, 17).view(2, 6)
for folder in folders:
    if how == "load_model":
        model = tersely.load_model(folder)
    else:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    print(json.dumps(model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.flatten().tolist()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["load_model", "auto"])
def test_fresh_process_gives_the_same_logits(prunable, tmp_path, how):
    ids = torch.arange(5, 17).view(2, 6)
    models = [carved_from(prunable(name)) for name in NAMES]
    folders = [save_carved(model, tmp_path / name) for model, name in zip(models, NAMES, strict=True)]
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(Path(tersely.__file__).parents[1])
    command = [sys.executable, "-c", FRESH, how, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    for model, line in zip(models, done.stdout.splitlines()[-len(models) :], strict=True):
        expected = logits(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        assert off(torch.tensor(json.loads(line)), expected) < 1e-5, model.config.model_type
