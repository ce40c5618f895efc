"""A model folder is checked before anything heavy happens, and its notes are defaults."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from models import FAMILIES, HEADS, MAX_LENGTH, build_tokenizer
from tersely.errors import UserError
from tersely.models.folder import open_folder, read_config, read_encoder, read_task
from tersely.tasks import QuestionAnswering, SequenceClassification, TokenClassification, to_json
from tersely.tasks.options import TaskOptions


@pytest.fixture
def folder(tokenizer_folder, tmp_path) -> Path:
    """A folder with all but weights, which `open_folder` does not read."""
    shutil.copytree(tokenizer_folder("bert"), tmp_path / "model")
    write_config(tmp_path / "model")
    return tmp_path / "model"


def write_config(folder: Path, head: str = HEADS[0], labels: int = 3, **changes) -> None:
    config = {
        "model_type": "bert",
        "architectures": [f"BertFor{head}"],
        "id2label": {str(i): f"L{i}" for i in range(labels)},
        "max_position_embeddings": 96,
        "vocab_size": 1000,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps({k: v for k, v in {**config, **changes}.items() if v is not None}))


def write_notes(folder: Path, **settings) -> None:
    (folder / "tersely_task.json").write_text(json.dumps({"task": settings, "files": []}))


def task(folder: Path, **options):
    return read_task(folder, read_config(folder), TaskOptions(**options))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", ["bert", "roberta", "deberta_v2"])
def test_real_folder_is_opened(model_folder, family, head):
    opened = open_folder(model_folder(head, family))
    kinds = dict(zip(HEADS, (SequenceClassification, TokenClassification, QuestionAnswering), strict=True))
    assert type(opened.task) is kinds[head]
    assert opened.task.max_seq_length == min(MAX_LENGTH, kinds[head].max_seq_length)
    assert opened.config["model_type"].replace("-", "_") == family
    roles = json.loads((opened.path / "tokenizer_config.json").read_text())
    assert opened.encoder.pad_id == json.loads((opened.path / "config.json").read_text())["pad_token_id"]
    assert roles["pad_token"] in opened.encoder.to_json()


def test_labels_come_in_the_order_of_their_numbers(folder):
    write_config(folder, id2label={"10": "k", "2": "c", **{str(i): chr(97 + i) for i in (0, 1, 3, 4, 5, 6, 7, 8, 9)}})
    assert task(folder).labels == tuple("abcdefghijk")
    write_config(folder, id2label=None)
    assert task(folder).labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize("names", [{"1": "a", "2": "b"}, {"x": "a"}, ["a", "b"], {"0": "a", "00": "b"}])
def test_labels_without_proper_numbers_are_refused(folder, names):
    write_config(folder, id2label=names)
    with pytest.raises(UserError, match=r"config.json: The 'id2label' must name every label by its number"):
        task(folder)


def test_missing_folder_and_config_are_named(tmp_path):
    with pytest.raises(UserError, match="absent: There is no such model folder"):
        open_folder(tmp_path / "absent")
    with pytest.raises(UserError, match=r"has no config.json"):
        open_folder(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"has no config.json"):
        open_folder(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'"bert"', b"\xff\xfe{}", b'{"architectures": []}'])
def test_broken_config_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config.json: The config (is not JSON|does not say which 'model_type')"):
        open_folder(folder)


@pytest.mark.parametrize("architectures", [None, [], ["BertModel"], ["BertForMaskedLM"]])
def test_model_without_a_head_is_refused(folder, architectures):
    write_config(folder, architectures=architectures)
    with pytest.raises(UserError, match=r"has no head for a task.*tersely finetune"):
        open_folder(folder)


def test_missing_tokenizer_is_named(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="has no tokenizer"):
        open_folder(folder)


@pytest.mark.parametrize("content", ["", "{}", '{"model": {}}', "not json"])
def test_broken_tokenizer_is_refused_in_one_line(folder, content):
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match="tokenizer cannot be loaded") as caught:
        open_folder(folder)
    assert "\n" not in str(caught.value)


def test_tokenizer_larger_than_the_table_is_refused(folder):
    size = open_folder(folder).encoder.vocab_size
    write_config(folder, vocab_size=size)
    open_folder(folder)
    write_config(folder, vocab_size=size - 1)
    with pytest.raises(
        UserError, match=rf"up to {size - 1}, the model's table has {size - 1} rows: they do not belong"
    ):
        open_folder(folder)


def test_tokenizer_with_a_number_beyond_the_table_is_refused(folder):
    """A vocabulary with gaps: fewer tokens than rows, one number too high."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    size = len(content["model"]["vocab"])
    content["model"]["vocab"]["fox"] = 5000
    path.write_text(json.dumps(content))
    write_config(folder, vocab_size=size + 10)
    with pytest.raises(UserError, match="they do not belong together"):
        open_folder(folder)


def test_pad_id_is_the_tokenizers_own(tmp_path):
    for family in FAMILIES:
        tokenizer = build_tokenizer(tmp_path / family, family)
        encoder = read_encoder(tmp_path / family, {"pad_token_id": 77})
        assert encoder.pad_id == (tokenizer.token_to_id("<pad>") or tokenizer.token_to_id("[PAD]") or 0)


@pytest.mark.parametrize(
    ("head", "other"),
    [(HEADS[0], "token_classification"), (HEADS[1], "sequence_classification"), (HEADS[2], "regression")],
)
def test_task_that_the_head_is_not_for_is_refused(folder, head, other):
    write_config(folder, head)
    with pytest.raises(UserError, match=rf"head is for .*, not for {other} \(option 'task'\)"):
        task(folder, task=other)


def test_task_decides_how_a_classifier_answers(folder):
    assert task(folder).problem == "single_label_classification"
    several = task(folder, task="multi_label_classification")
    assert (several.problem, several.metric) == ("multi_label_classification", "micro_f1")
    write_config(folder, labels=1)
    assert (task(folder).problem, task(folder).metric) == ("regression", "pearson")
    write_config(folder, problem_type="multi_label_classification")
    assert task(folder).metric == "micro_f1"
    assert task(folder, task="sequence_classification").metric == "accuracy"


@pytest.mark.parametrize(
    ("labels", "changes", "options", "message"),
    [
        (3, {}, {"task": "regression"}, "head has 3 outputs; regression needs one"),
        (1, {}, {"task": "sequence_classification"}, "head has 1 outputs; single_label_classification needs at least"),
        (3, {"problem_type": "regression"}, {}, "head has 3 outputs; regression needs one"),
        (3, {"problem_type": "ranking"}, {}, "no kind of answer 'ranking'"),
    ],
)
def test_answer_that_the_head_cannot_give_is_refused(folder, labels, changes, options, message):
    write_config(folder, labels=labels, **changes)
    with pytest.raises(UserError, match=message):
        task(folder, **options)


@pytest.mark.parametrize(
    ("head", "labels", "metric", "hint"),
    [
        (HEADS[0], 3, "f1", "macro_f1"), (HEADS[0], 3, "acuracy", "accuracy"), (HEADS[0], 1, "accuracy", "pearson"),
        (HEADS[1], 3, "em", "f1"), (HEADS[2], 2, "accuracy", "em"),
    ],
)  # fmt: skip
def test_metric_that_does_not_fit_is_refused_with_those_that_do(folder, head, labels, metric, hint):
    write_config(folder, head, labels)
    with pytest.raises(UserError, match=f"metric '{metric}' does not fit .*{hint}"):
        task(folder, metric=metric)


def test_f1_fits_two_labels(folder):
    write_config(folder, labels=2)
    assert task(folder, metric="f1").metric == "f1"


@pytest.mark.parametrize(
    ("model_type", "pad", "longest"),
    [("bert", 0, 96), ("deberta-v2", 0, 96), ("roberta", 1, 94), ("xlm-roberta", 1, 94), ("camembert", 1, 94),
     ("mpnet", 1, 94), ("roberta", 0, 95)],
)  # fmt: skip
def test_length_beyond_the_positions_is_refused(folder, model_type, pad, longest):
    write_config(folder, model_type=model_type, pad_token_id=pad)
    assert task(folder).max_seq_length == longest
    assert task(folder, max_seq_length=longest).max_seq_length == longest
    with pytest.raises(UserError, match=f"option is {longest + 1}, but the model has {longest} positions"):
        task(folder, max_seq_length=longest + 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_longest_length_allowed_really_runs(model_folder, family):
    """And one more does not, where positions are a table that is looked up by number."""
    import torch

    from tersely.engines.torch import input_names
    from tersely.models.torch_folder import load_module

    folder = model_folder(HEADS[0], family)
    config = read_config(folder)
    longest = max(n for n in range(60, 120) if allowed(folder, n))
    module = load_module(folder)
    for length, fits in ((longest, True), (longest + 1, False)):
        feed = {name: torch.ones(1, length, dtype=torch.long) for name in input_names(module)}
        feed["input_ids"] = feed["input_ids"] * 7
        feed.pop("token_type_ids", None)
        if fits:
            assert module(**feed).logits.isfinite().all()
        elif config["model_type"] not in ("deberta-v2", "modernbert"):
            with pytest.raises((IndexError, RuntimeError, ValueError)):
                module(**feed)


def allowed(folder: Path, length: int) -> bool:
    try:
        return task(folder, max_seq_length=length) is not None
    except UserError:
        return False


@pytest.mark.parametrize(
    ("head", "option"),
    [(HEADS[0], {"doc_stride": 5}), (HEADS[0], {"no_answer": True}), (HEADS[1], {"n_best_size": 3}),
     (HEADS[1], {"null_score_diff_threshold": 0.0}), (HEADS[0], {"answer_language": "zh"})],
)  # fmt: skip
def test_option_without_effect_on_the_task_is_refused(folder, head, option):
    write_config(folder, head)
    with pytest.raises(UserError, match=f"'{next(iter(option))}' option has no effect on"):
        task(folder, **option)


def test_notes_are_defaults_and_options_win(folder):
    write_config(folder, HEADS[2])
    write_notes(folder, **to_json(QuestionAnswering(max_seq_length=50, doc_stride=9, metric="em", n_best_size=3)))
    read = task(folder)
    assert (read.max_seq_length, read.doc_stride, read.metric, read.n_best_size) == (50, 9, "em", 3)
    read = task(folder, doc_stride=4, metric="f1")
    assert (read.max_seq_length, read.doc_stride, read.metric, read.n_best_size) == (50, 4, "f1", 3)


def test_notes_of_another_task_and_notes_on_labels_are_passed_over(folder):
    write_notes(folder, **to_json(QuestionAnswering(max_seq_length=50)))
    assert task(folder).max_seq_length == 96
    write_notes(folder, **to_json(SequenceClassification(("x", "y"), max_seq_length=50)))
    read = task(folder)
    assert (read.labels, read.max_seq_length) == (("L0", "L1", "L2"), 50)


def test_metric_of_the_notes_goes_with_their_kind_of_answer(folder):
    write_notes(folder, **to_json(SequenceClassification(("a", "b", "c"), max_seq_length=50, metric="mcc")))
    assert task(folder).metric == "mcc"
    assert task(folder, task="multi_label_classification").metric == "micro_f1"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"task": 3}', '{"task": "sequence_classification"}'])
def test_damaged_notes_are_refused(folder, content):
    (folder / "tersely_task.json").write_text(content)
    with pytest.raises(UserError, match=r"tersely_task.json: The notes are damaged"):
        task(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"strde": 3}, "has no entry 'strde'"), ({"max_seq_length": "x"}, "'max_seq_length' must be int"),
     ({"max_seq_length": 4096}, "has 96 positions"), ({"metric": "bleu"}, "metric 'bleu' does not fit")],
)  # fmt: skip
def test_settings_in_notes_that_make_no_sense_are_refused(folder, settings, message):
    write_notes(folder, name="sequence_classification", **settings)
    with pytest.raises(UserError, match=message):
        task(folder)
