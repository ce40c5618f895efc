"""What cannot be pruned is said before any work: nothing is exported, nothing trained, nothing written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tersely
from learnable import number, rows, single, split, tiny, tsv
from tersely.errors import UserError


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    split(folder, single, tsv, "tsv")
    tsv(folder / "texts.tsv", [{"text": row["text"]} for row in rows(single, 60)])
    tsv(folder / "numbers.tsv", rows(number, 60))
    tiny(folder / "number", labels=1)
    tiny(folder / "model", layers=2, id2label={0: "bad", 1: "good"})
    tiny(folder / "wider", layers=3, id2label={0: "bad", 1: "good"})
    other = Path(shutil.copytree(folder / "model", folder / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "squeezebert"}))
    return folder


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "width above 1": ({"width_mult_list": "5/4"}, r"must hold fractions in \(0, 1\]. Got '5/4'"),
    "width 0": ({"width_mult_list": [0]}, r"must hold fractions in \(0, 1\]. Got 0"),
    "no fraction": ({"width_mult_list": "__import__('os')"}, r"must hold fractions in \(0, 1\]"),
    "width twice": ({"width_mult_list": "3/4 0.75"}, "'width_mult_list' option holds 3/4 twice"),
    "width too small": ({"width_mult_list": "1/10"}, "width 1/10 of 4 heads is less than half a head"),
    "too narrow for INT8": (
        {"width_mult_list": "1/2"},
        "width_mult_0.5 would leave everything float",
    ),
    "depth too small": ({"depth_mult_list": "1/10"}, "depth 1/10 of 2 layers is less than half a layer"),
    "nothing to learn": ({"distill_hidden": 0, "distill_logits": 0}, "are all 0: nothing is learnt"),
    "temperature 0": ({"distill_temperature": 0}, "'distill_temperature' option must be above 0"),
    "idle temperature": ({"distill_temperature": 2, "distill_logits": 0}, "no effect with distill_logits 0"),
    "temperature of a number": (
        {"distill_temperature": 2, "model": "number", "train_file": "numbers.tsv", "eval_file": "numbers.tsv"},
        "'distill_temperature' option has no effect on a regression",
    ),
    "idle teacher": (
        {"teacher_model_name_or_path": "model", "distill_hidden": 0, "distill_logits": 0, "label_loss": 1},
        "'teacher_model_name_or_path' option has no effect with distill_hidden 0 and distill_logits 0",
    ),
    "no rows to weigh by": ({"importance_rows": 0}, "'importance_rows' option must be at least 1"),
    "unknown importance": ({"importance": "label"}, "Did you mean 'labels'?"),
    "no training rows": (
        {"train_file": None},
        "training rows. Name them with train_file, or write strategy ptq",
    ),
    "no eval rows": ({"eval_file": None}, "'dynabert\\+ptq' needs eval rows"),
    "cut without rows": ({"strategy": "prune_embeddings", "train_file": None}, "needs training rows"),
    "rows without labels": ({"train_file": "texts.tsv"}, "label"),
    "undescribed family": ({"model": "other"}, "family 'squeezebert' has no description.*describe_a_family"),
    "rate 0": ({"learning_rate": 0}, "'learning_rate' option must be above 0"),
    "no effect on widths": (
        {"training_args": {"gradient_checkpointing": True}},
        "'gradient_checkpointing' option has no effect",
    ),
    "no option at all": ({"learning_rat": 1}, "There is no option 'learning_rat'. Did you mean 'learning_rate'?"),
    "training of ptq": ({"strategy": "ptq", "max_steps": 3}, "'max_steps' option has no effect.*It is for dynabert"),
    "widths of ptq": (
        {"strategy": "ptq", "width_mult_list": "1/2"},
        "with the strategy 'ptq'. It is for dynabert",
    ),
    "tokens uncut": ({"max_vocab_size": 99}, r"'max_vocab_size' option \(99\) has no effect.*prune_embeddings"),
    "idle patterns": (
        {"strategy": "dynabert", "skip_layers": "*x*"},
        r"'skip_layers' option \(\*x\*\)",
    ),
    "no such teacher": ({"teacher_model_name_or_path": "gone"}, "gone: There is no such model folder"),
    "teacher of another size": ({"teacher_model_name_or_path": "wider"}, "hidden states cannot be compared"),
    "teacher of cut": (
        {"strategy": "prune_embeddings+dynabert", "teacher_model_name_or_path": "model"},
        "'teacher_model_name_or_path' option cannot be used where the vocabulary is cut",
    ),
    "bare graph": ({"input_infer_model_path": "g.onnx"}, "'dynabert' needs a model folder.*A bare graph can have ptq"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistake_is_told_before_any_work(
    case: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, said = BAD[case]
    monkeypatch.chdir(place)
    keywords: dict[str, Any] = {"model": "model", "train_file": "train.tsv", "eval_file": "dev.tsv", **options}
    before = sorted(place.rglob("*"))
    with pytest.raises(UserError, match=said):
        tersely.compress(keywords.pop("model"), output_dir=tmp_path / "out", **keywords)
    assert list(tmp_path.iterdir()) == []
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("keywords", [{"importance": "teacher"}, {"strategy": "prune+dynabert", "target_speedup": 2}])
def test_rows_without_labels_may_be_learnt_from_the_teacher(place: Path, keywords: dict[str, Any]) -> None:
    """Up to the checks: what follows is the training's own."""
    from tersely.compression.divide import Data, divide_rows
    from tersely.data import read
    from tersely.models.folder import open_folder
    from tersely.options.compress import CompressOptions

    options = CompressOptions(**keywords)
    data = Data(read(place / "texts.tsv"), read(place / "dev.tsv"))
    divided = divide_rows(data, open_folder(place / "model").task, options, options.plans())
    assert divided.counts["train"] == 60
    assert all(example.gold is None for example in divided.train)


def test_a_criterion_counts_where_labels_do(place: Path) -> None:
    """What `prune` has made is not ordered anew, so that no label is asked for."""
    from tersely.compression.check_models import losses_after_prune, prune_settings
    from tersely.options.compress import CompressOptions

    by_labels = CompressOptions(label_loss=1)
    assert prune_settings(CompressOptions(), max).criterion is max
    assert losses_after_prune(CompressOptions(), max, place).criterion is None
    assert losses_after_prune(by_labels, max, place).criterion is max
