"""Rows without labels: what they join, that their labels are not read, and where they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tersely
from folders import digests
from learnable import jsonl, number, pair, question, rows, several, single, tagged, tiny, tsv
from tersely import cli
from tersely.compression.divide import STATISTICS, Data, DividedRows, divide_rows
from tersely.data import Rows, from_dataset, texts_of
from tersely.errors import UserError
from tersely.models.folder import open_folder
from tersely.options.compress import CompressOptions
from tersely.options.effects import check_unlabelled
from tersely.options.yaml import Asker, read_config, without_idle
from tersely.strategy import lacks_train_rows, parse
from tersely.tasks import QuestionAnswering, SequenceClassification, TokenClassification

TRAINING: dict[str, Any] = {"max_steps": 6, "save_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-3}
LABELS = ("bad", "good")
TASK = SequenceClassification(LABELS)
THINGS = SequenceClassification(("animal", "place", "time"), "multi_label_classification")
TAGGING = TokenClassification(("O", "S-LOC", "B-PER", "I-PER", "E-PER"))


def texts(count: int, seed: int = 9) -> list[str]:
    return [row["text"] for row in rows(single, count, seed)]


def divide(data: Data, task: Any = TASK, **keywords: Any) -> DividedRows:
    options = CompressOptions(**keywords)
    return divide_rows(data, task, options, options.plans())


def spelled(examples: Any) -> list[str]:
    return [example.text for example in examples]


class TestWhatTheyJoin:
    def test_training_and_counts_take_all_of_them_and_labels_none(self) -> None:
        train, dev = (from_dataset(rows(single, 30, seed)) for seed in (0, 1))
        data = Data(train, dev, unlabelled=from_dataset([{"text": text, "label": "unheard"} for text in texts(50)]))
        divided = divide(data, strategy="dynabert")
        assert spelled(divided.train) == [row["text"] for row in train]
        assert spelled(divided.unlabelled) == texts(50)
        assert {example.gold for example in divided.unlabelled} == {None}
        counts = {name: count for name, count in divided.counts.items() if count}
        assert counts == {"train": 30, "unlabelled": 50, "scoring": 30}

    @pytest.mark.parametrize("with_train", [True, False])
    def test_statistics_of_pruning_are_drawn_from_both_kinds_by_seed(self, with_train: bool) -> None:
        train = from_dataset([{"text": f"own {i}", "label": "good"} for i in range(6000)]) if with_train else None
        others = from_dataset([{"text": f"other {i}"} for i in range(12000)])
        dev = from_dataset(rows(single, 300, 1))
        keywords: dict[str, Any] = {"strategy": "prune", "target_speedup": 2}
        found = spelled(divide(Data(train, dev, unlabelled=others), **keywords).statistics)
        assert len(found) == len(set(found)) == STATISTICS
        assert sum(text.startswith("other") for text in found) == pytest.approx(
            STATISTICS * (12000 / 18000 if with_train else 1), rel=0.05
        )
        assert found == spelled(divide(Data(train, dev, unlabelled=others), **keywords).statistics)
        assert found != spelled(divide(Data(train, dev, unlabelled=others), **keywords, seed=1).statistics)

    def test_they_calibrate_in_the_place_of_training_rows_so_that_all_eval_rows_score(self) -> None:
        dev, others = from_dataset(rows(single, 90, 1)), from_dataset([{"text": text} for text in texts(300)])
        divided = divide(Data(None, dev, unlabelled=others), strategy="ptq")
        assert set(spelled(divided.calibration)) <= set(texts(300))
        assert (divided.counts["calibration"], divided.counts["scoring"], divided.notes) == (128, 90, ())

    def test_beside_training_rows_these_calibrate(self) -> None:
        train, others = from_dataset(rows(single, 200)), from_dataset([{"text": "other"}] * 50)
        divided = divide(Data(train, from_dataset(rows(single, 30, 1)), unlabelled=others), strategy="qat")
        assert "other" not in spelled(divided.calibration)


LABELLED: dict[str, tuple[Any, Callable[..., Any], dict[str, Any]]] = {
    "label": (TASK, single, {"label": "unheard"}),
    "pair": (TASK, pair, {"label": None}),
    "labels": (
        SequenceClassification(("animal", "place", "time"), "multi_label_classification"),
        several,
        {"labels": ["unheard"]},
    ),
    "number": (SequenceClassification(("LABEL_0",), "regression"), number, {"label": "many"}),
    "tags": (TAGGING, tagged("BIOES"), {"tags": ["unheard"]}),
    "answers": (QuestionAnswering(), question, {"answers": [{"text": "nowhere", "answer_start": 3}]}),
}


class TestLabelsInThemAreNotRead:
    @pytest.mark.parametrize("kind", LABELLED)
    @pytest.mark.parametrize("in_memory", [True, False])
    def test_rows_are_the_same_with_any_labels_and_without(self, kind: str, in_memory: bool, tmp_path: Path) -> None:
        task, make, bogus = LABELLED[kind]
        plain = [{name: value for name, value in row.items() if name not in bogus} for row in rows(make, 20)]
        spoilt = [{**row, **bogus} for row in plain]
        read = []
        for name, records in (("plain", plain), ("spoilt", spoilt)):
            unlabelled: Any = records if in_memory else jsonl(tmp_path / f"{name}.jsonl", records)
            data = Data(None, from_dataset(rows(make, 5)), unlabelled=texts_of(unlabelled))
            read.append(divide(data, task, strategy="ptq").unlabelled)
        assert read[0] == read[1]
        assert len(read[0]) == 20
        assert {example.gold for example in read[0]} == {None}

    def test_a_label_column_that_was_named_need_not_be_there(self) -> None:
        from tersely.tasks import Columns

        named = [{"review": row["text"], "stars": row["label"]} for row in rows(single, 20)]
        columns, others = Columns(text="review", label="stars"), [{"review": text, "note": ""} for text in texts(9)]
        data = Data(from_dataset(named), from_dataset(named), None, columns, texts_of(others))
        assert spelled(divide(data, strategy="dynabert").unlabelled) == texts(9)

    def test_rows_of_clue_without_an_agreed_label_count(self, tmp_path: Path) -> None:
        record = {"sentence1": "a", "sentence2": "b", "genre": "g", "prem_id": 1, "label": "-"}
        found = texts_of(jsonl(tmp_path / "ocnli.jsonl", [record, {**record, "label": "entailment"}]))
        assert [row["text_pair"] for row in found] == ["b", "b"]

    def test_plain_text_is_a_text_a_line_whatever_the_column_is_called(self, tmp_path: Path) -> None:
        from tersely.tasks import Columns

        (tmp_path / "more.txt").write_text("good, really\n\nbad\n")
        named = from_dataset([{"review": "x", "label": "good"}] * 9)
        for header in (None, True):  # of a table beside it
            others = texts_of(tmp_path / "more.txt", header)
            divided = divide(Data(named, named, None, Columns(text="review"), others), strategy="dynabert")
            assert spelled(divided.unlabelled) == ["good, really", "bad"]


class TestWhereTheyDoNotFit:
    @pytest.mark.parametrize(
        ("task", "make", "others", "said"),
        [
            (TASK, pair, [{"text": "x"}], "unlabelled rows lack a 'text_pair', which the labelled ones have. Columns"),
            (TASK, single, [{"text": "x", "title": "y"}], "unlabelled rows have a 'text_pair', which the labelled"),
            (TASK, single, [{"body": "x"}], "There is no text column. Columns here: body"),
            (TASK, single, [{"text": None}], "dataset:1: Column 'text' must hold text. Got nothing"),
            (QuestionAnswering(), question, [{"text": "x"}], "There is no column of questions"),
            (TAGGING, tagged("BIOES"), [{"id": 3}], "There is no column of words"),
        ],
    )  # fmt: skip
    def test_data_is_told_in_one_line(self, task: Any, make: Any, others: Any, said: str) -> None:
        dev = from_dataset(rows(make, 9))
        with pytest.raises(UserError, match=said) as caught:
            divide(Data(None, dev, unlabelled=texts_of(others)), task, strategy="ptq")
        assert "\n" not in str(caught.value)

    def test_without_rows_that_score_the_training_rows_say_what_fits(self) -> None:
        train = Rows("train.tsv", ("text", "label"), ({"text": "x", "label": "good"},), (2,))
        data = Data(train, None, unlabelled=texts_of([{"text": "x", "text_pair": "y"}]))
        with pytest.raises(UserError, match="have a 'text_pair'"):
            divide(data, strategy="prune", target_speedup=2)

    @pytest.mark.parametrize(
        ("options", "train", "said"),
        [
            ({"strategy": "dynamic+embeddings"}, True, "with the strategy 'dynamic.embeddings'. It is for"),
            ({"strategy": "embeddings"}, False, "with the strategy 'embeddings'"),
            ({"strategy": "ptq", "activation_quantize_type": "abs_max"}, False, "with the strategy 'ptq'"),
            ({"strategy": "ptq"}, True, "with the strategy 'ptq' beside training rows"),
            ({"strategy": "qat", "distill_logits": 0}, True, "with distill_hidden 0 and distill_logits 0"),
            ({"strategy": "ptq"}, False, None),
            ({"strategy": ["ptq", "prune_embeddings+ptq"]}, True, None),
            ({"strategy": "prune+ptq", "target_speedup": 2}, True, None),
            ({"strategy": "prune_embeddings+qat", "distill_logits": 0}, True, None),
            ({"strategy": "auto"}, True, None),
        ],
    )  # fmt: skip
    def test_strategies_that_do_not_look_at_them(self, options: dict[str, Any], train: bool, said: str | None) -> None:
        settings = CompressOptions(**options)
        if said is None:
            check_unlabelled(settings, settings.plans(), train=train)
            return
        with pytest.raises(UserError, match=f"'unlabelled_file' option has no effect {said}"):
            check_unlabelled(settings, settings.plans(), train=train)

    @pytest.mark.parametrize(
        ("plan", "options", "lacks"),
        [
            ("dynabert", {}, True),
            ("dynabert", {"importance": "teacher"}, False),
            ("dynabert", {"importance": "teacher", "label_loss": 0.5}, True),
            ("prune+dynabert", {"target_speedup": 2}, False),
            ("qat", {}, True),
            ("qat", {"label_loss": 0}, False),
            ("prune_embeddings", {}, False),
        ],
    )
    def test_what_learns_from_labels_needs_training_rows(self, plan: str, options: dict[str, Any], lacks: bool) -> None:
        settings = CompressOptions(strategy=plan, **options)
        by_labels = [parsed for parsed in settings.plans() if settings.learns_from_labels(parsed)]
        assert lacks_train_rows(parse(plan), train=False, unlabelled=True, by_labels=by_labels) == lacks
        assert lacks_train_rows(parse(plan), train=False, unlabelled=False, by_labels=by_labels)
        assert not lacks_train_rows(parse(plan), train=True, by_labels=by_labels)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its rows, and texts: with labels that it has never heard of, and as plain text."""
    folder = tmp_path_factory.mktemp("unlabelled")
    for seed, name in enumerate(("train", "dev")):
        tsv(folder / f"{name}.tsv", rows(single, 24, seed))
    tiny(folder / "model", hidden=64, std=0.15, id2label=dict(enumerate(LABELS)))
    jsonl(folder / "spoilt.jsonl", [{"text": text, "label": "unheard"} for text in texts(60)])
    (folder / "plain.txt").write_text("\n".join(texts(60)) + "\n")
    return folder


def run(place: Path, output: Path, **keywords: Any) -> dict[str, Any]:
    """What the result of a run says."""
    tersely.compress(place / "model", output_dir=output, engines="onnxruntime", **keywords)
    return dict(json.loads((output / "result.json").read_text()))


def models(output: Path) -> dict[str, str]:
    """The bytes of all models that a run wrote, by name."""
    found = {str(path.relative_to(output)): sha for path, sha in digests(output).items()}
    return {name: sha for name, sha in found.items() if name.endswith((".safetensors", ".onnx"))}


@pytest.mark.slow
def test_one_result_with_their_labels_and_without(
    place: Path, tmp_path: Path, short_timings: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command with labels that would be refused, in Python from plain text; batches mix both kinds."""
    both = {"train_file": place / "train.tsv", "eval_file": place / "dev.tsv"}
    quick = {"algo_list": "min_max", "calibration_rows": 16, "importance_rows": 16, **TRAINING}
    words = [f"--{name}={value}" for name, value in {**both, **quick, "engines": "onnxruntime"}.items()]
    words += ["--strategy", "dynabert", "--strategy", "qat", "--unlabelled_file", str(place / "spoilt.jsonl")]
    assert cli.main(["compress", str(place / "model"), *words, "--output_dir", str(tmp_path / "spoilt")]) == 0
    assert "24 rows trained, 60 unlabelled rows, 16 rows calibrated" in capsys.readouterr().out
    keywords: dict[str, Any] = {**both, **quick, "strategy": ["dynabert", "qat"]}
    plain = run(place, tmp_path / "plain", **keywords, unlabelled_file=place / "plain.txt")
    assert models(tmp_path / "plain") == models(tmp_path / "spoilt") != {}
    assert (plain["rows"]["train"], plain["rows"]["unlabelled"]) == (24, 60)
    assert plain["settings"]["files"]["unlabelled"].endswith("plain.txt")
    assert "60 unlabelled" in (tmp_path / "plain" / "report.md").read_text()


@pytest.mark.slow
def test_they_are_enough_where_no_labels_are_needed(place: Path, tmp_path: Path, short_timings: None) -> None:
    """For pruning to order too; a cut vocabulary keeps their tokens."""
    keywords: dict[str, Any] = {
        "eval_file": place / "dev.tsv",
        "unlabelled_file": [{"text": text} for text in texts(60)],
    }
    trains = {"strategy": "prune_embeddings+dynabert", **TRAINING}
    with pytest.raises(UserError, match=r"learns from labels, and needs training rows that have them\..*label_loss 0"):
        run(place, tmp_path / "refused", **keywords, **trains)
    assert not (tmp_path / "refused").exists()
    found = run(place, tmp_path / "out", **keywords, **trains, importance="teacher")
    assert (found["rows"]["train"], found["rows"]["unlabelled"]) == (0, 60)
    assert [candidate["name"] for candidate in found["candidates"]] == ["prune_embeddings-width_mult_0.75"]
    kept = open_folder(tmp_path / "out" / "torch" / "prune_embeddings-width_mult_0.75").encoder
    unknown = kept.plain(["[UNK]"])[0].ids
    assert not any(set(unknown) & set(example.ids) for example in kept.plain(texts(60)))


@pytest.mark.slow
def test_models_are_pruned_by_them_alone(place: Path, tmp_path: Path, short_timings: None) -> None:
    keywords: dict[str, Any] = {"eval_file": place / "dev.tsv", "unlabelled_file": place / "plain.txt"}
    found = run(place, tmp_path / "out", **keywords, strategy="prune", target_speedup=1.2, target_length=16)
    assert (found["rows"]["train"], found["rows"]["unlabelled"], found["rows"]["scoring"]) == (0, 60, 24)
    assert found["pruned"][0]["shot"]["target"] == 1.2


def test_a_file_of_options_for_several_runs_leaves_them_out_where_nothing_looks_at_them(tmp_path: Path) -> None:
    for strategy, kept in (("dynabert", True), ("dynamic", False)):
        (tmp_path / "a.yml").write_text(f"strategy: {strategy}\nunlabelled_file: more.txt\n")
        config = without_idle(read_config(tmp_path / "a.yml", Asker(["strategy", "unlabelled_file"])), None)
        assert ("unlabelled_file" in config.settings) == kept
        assert any("unlabelled_file (it is nothing to 'dynamic')" in note for note in config.notes()) != kept
