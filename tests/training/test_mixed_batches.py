"""Rows without labels in a training: batches that mix both kinds, and what is learnt from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learnable import number, question, rows, several, single, tagged
from models import build
from tersely.data import from_dataset
from tersely.engines.torch import as_tuple, input_names, output_names
from tersely.errors import UserError
from tersely.models.folder import ModelFolder, open_folder
from tersely.prune import PruneSettings, TrainingRun, train_widths
from tersely.tasks import Columns
from tersely.training.batches import LABELLED, Collator, FeatureDataset
from tersely.training.losses import Counts, label_loss, logits_loss, mask_of
from widths import TRAINING, examples, learnt, weights_in

CLASSES = {"labels": 2, "id2label": {0: "bad", 1: "good"}}
THINGS = {"labels": 3, "id2label": {0: "animal", 1: "place", 2: "time"}, "problem_type": "multi_label_classification"}
TAGS = {"labels": 5, "id2label": dict(enumerate(("O", "S-LOC", "B-PER", "I-PER", "E-PER")))}
KINDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "label": ("SequenceClassification", single, CLASSES),
    "labels": ("SequenceClassification", several, THINGS),
    "number": ("SequenceClassification", number, {"labels": 1, "problem_type": "regression"}),
    "tags": ("TokenClassification", tagged("BIOES"), TAGS),
    "span": ("QuestionAnswering", question, {}),
}


def batch_of(folder: ModelFolder, model: Any, found: list[Any]) -> dict[str, Any]:
    dataset = FeatureDataset(folder.task, found, folder.encoder)
    return Collator(folder.encoder, input_names(model))([dataset[i] for i in range(len(dataset))])


@pytest.fixture(params=KINDS)
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A model with eight labelled rows, and the same with others among them whose labels were not read."""
    head, make, fields = KINDS[request.param]
    folder = open_folder(build(tmp_path / "model", "bert", head, layers=1, std=0.2, **fields))
    model = folder.load().eval()
    own, others = (
        folder.task.read(from_dataset(rows(make, 8, seed)), Columns(), labelled=seed == 0) for seed in (0, 1)
    )
    return folder, model, own, [example for both in zip(others, own, strict=True) for example in both]


def test_the_loss_of_labels_is_torchs_over_the_rows_that_have_them(mixed: Any) -> None:
    folder, model, own, both = mixed
    labelled, batch = batch_of(folder, model, own), batch_of(folder, model, both)
    assert LABELLED not in labelled
    assert batch[LABELLED].tolist() == [False, True] * 8
    with torch.no_grad():
        expected = model(**labelled).loss
        outputs = as_tuple(model(**{name: batch[name] for name in input_names(model)}), output_names(model))
    found = label_loss(outputs, batch, folder.task.loss, Counts.of([batch]))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_parts_of_a_batch_add_up_to_its_loss(mixed: Any) -> None:
    """One part has no label at all."""
    folder, model, own, both = mixed
    ordered = sorted(both, key=lambda example: example.gold is not None)
    dataset = FeatureDataset(folder.task, ordered, folder.encoder)
    collate, kind = Collator(folder.encoder, input_names(model)), folder.task.loss
    parts = [collate([dataset[i] for i in range(*ends)]) for ends in ((0, 4), (4, 11), (11, 16))]
    assert not parts[0][LABELLED].any()
    counts = Counts.of(parts)
    assert counts.labelled_rows == len(own)
    found = 0.0
    for batch in parts:
        with torch.no_grad():
            outputs = as_tuple(model(**{name: batch[name] for name in input_names(model)}), output_names(model))
        found += label_loss(outputs, batch, kind, counts).item()
    with torch.no_grad():
        expected = model(**batch_of(folder, model, own)).loss.item()
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_criterion_is_given_the_rows_that_have_labels(mixed: Any) -> None:
    folder, model, own, both = mixed
    batch, seen = batch_of(folder, model, both), []

    def criterion(logits: Any, labels: Any) -> torch.Tensor:
        pair = (logits[0], labels[0]) if isinstance(logits, tuple) else (logits, labels)
        seen.append([len(part) for part in pair])
        return pair[0].float().mean()

    with torch.no_grad():
        outputs = as_tuple(model(**{name: batch[name] for name in input_names(model)}), output_names(model))
    found = label_loss(outputs, batch, folder.task.loss, Counts.of([batch]), criterion)
    assert seen == [[len(own), len(own)]]
    assert found.item() == pytest.approx(outputs[0][1::2].mean().item(), rel=1e-4)


def test_the_teacher_is_heard_on_all_rows(mixed: Any) -> None:
    folder, model, _, both = mixed
    batch = batch_of(folder, model, both)
    with torch.no_grad():
        outputs = as_tuple(model(**{name: batch[name] for name in input_names(model)}), output_names(model))
    taught = tuple(output.roll(1, 0) for output in outputs)
    half = tuple(output.clone() for output in taught)
    for output, own in zip(half, outputs, strict=True):
        output[0] = own[0]  # the first row has no label
    counts, mask, kind = Counts.of([batch]), mask_of(batch), folder.task.loss
    assert logits_loss(outputs, taught, kind, mask, counts) != logits_loss(outputs, half, kind, mask, counts)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return learnt(tmp_path_factory.mktemp("learnt"), seed=3)


def trained(model: ModelFolder, work: Path, settings: PruneSettings, **parts: Any) -> dict[str, np.ndarray]:
    few = {**TRAINING, "max_steps": 6, "per_device_train_batch_size": 4}
    own = {"train": examples(model, "train")[:16], "evaluation": examples(model, "dev")[:10], **parts}
    (made,) = train_widths(TrainingRun(model, work=work, training=few, **own), settings)
    return weights_in(made.folder)


def without_labels(found: list[Any]) -> list[Any]:
    return [replace(example, gold=None) for example in found]


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.slow
@pytest.mark.parametrize("label_loss", [0, 1])
def test_a_training_learns_from_them(model: ModelFolder, tmp_path: Path, label_loss: float) -> None:
    settings = PruneSettings(width_mult_list="1/2", label_loss=label_loss)
    more = without_labels(examples(model, "train")[40:])
    with_them = trained(model, tmp_path / "with", settings, unlabelled=more)
    assert not same(with_them, trained(model, tmp_path / "without", settings))
    assert same(with_them, trained(model, tmp_path / "again", settings, unlabelled=more))
    other = trained(model, tmp_path / "with", settings, unlabelled=more[1:])  # another run than what is in the folder
    assert not same(with_them, other)


@pytest.mark.slow
def test_what_learns_from_labels_alone_is_as_without_them(model: ModelFolder, tmp_path: Path) -> None:
    settings = PruneSettings(width_mult_list="1/2", label_loss=1, distill_logits=0, distill_hidden=0)
    more = without_labels(examples(model, "train")[40:])
    found = trained(model, tmp_path / "with", settings, unlabelled=more)
    assert same(found, trained(model, tmp_path / "without", settings))


@pytest.mark.slow
def test_alone_they_do_where_no_label_is_needed(model: ModelFolder, tmp_path: Path) -> None:
    """The same rows, as training rows without labels or as others: one result."""
    taught, more = PruneSettings(width_mult_list="1/2", importance="teacher"), examples(model, "train")[:16]
    alone = trained(model, tmp_path / "alone", taught, train=[], unlabelled=without_labels(more))
    assert same(alone, trained(model, tmp_path / "train", taught, train=without_labels(more)))
    for changes in ({}, {"importance": "teacher", "label_loss": 1}):
        settings = PruneSettings(width_mult_list="1/2", **changes)
        with pytest.raises(UserError, match="There are no labelled training rows"):
            trained(model, tmp_path / "refused", settings, train=[], unlabelled=without_labels(more))
