"""Who teaches: a folder that was named, or the model that the pupil was made of, in a folder or in memory."""

from __future__ import annotations

import pytest
import torch

from live import Pointers, folder, load, pointers
from tersely.models.folder import ModelFolder, open_folder
from tersely.prune import PruneSettings
from tersely.qat import QatSettings
from tersely.tasks.encoder import NoTokenizer
from tersely.training.teacher import open_teacher, teacher_marks

IDS = torch.arange(5, 13)[None]


def logits(model):
    with torch.no_grad():
        found = model.eval()(input_ids=IDS)
    return found if isinstance(found, tuple) else (found.logits,)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("teacher") / "model")


def test_without_one_the_model_teaches_itself(place):
    model, _ = load(place)
    assert open_teacher(model, None, QatSettings()).module is model
    assert teacher_marks(QatSettings()) == []


@pytest.mark.parametrize("settings", [QatSettings, PruneSettings])
def test_a_folder_that_was_named_teaches(place, settings):
    model, _ = load(place)
    teacher = open_teacher(model, None, settings(teacher=place)).module
    assert teacher is not model
    torch.testing.assert_close(logits(teacher), logits(model))


def test_what_the_model_was_made_of_teaches(place):
    model, _ = load(place)
    with torch.no_grad():
        model.classifier.weight.zero_()  # the pupil is another model by now
    opened = open_folder(place)
    teacher = open_teacher(model, None, QatSettings(teacher=opened)).module
    torch.testing.assert_close(logits(teacher), logits(opened.load()))
    assert not torch.allclose(logits(teacher)[0], logits(model)[0])


def test_a_model_in_memory_teaches_what_was_made_of_it(place, tmp_path):
    """Its class is known to no folder, which holds its config alone."""
    (tmp_path / "config.json").write_text("{}")
    task = open_folder(place).task
    live = ModelFolder(tmp_path, {}, task, NoTokenizer(0, 400), pointers(place))
    teacher = open_teacher(pointers(place, seed=1), None, QatSettings(teacher=live)).module
    assert isinstance(teacher, Pointers)
    torch.testing.assert_close(logits(teacher), logits(live.template))
    assert len(teacher_marks(QatSettings(teacher=live))) == 1
    assert QatSettings(teacher=live).as_json()["teacher"] == tmp_path.name
