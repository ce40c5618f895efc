"""`tersely report`: pages of real runs of each kind, of old ones, and of rows that would like to be markup."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tersely
from compressible import Place, write_place
from report_page import check_reports, parse
from tersely.errors import UserError
from tersely.report import draw_reports, read_run, write_report

pytestmark = pytest.mark.usefixtures("short_timings")

QUICK: dict[str, Any] = {"strategy": "ptq", "algo_list": "mse", "engines": "onnxruntime", "calibration_rows": 16}
HOSTILE = "<script>alert(1)</script> \"'&amp; </td></table> \u202eright to left שלום 👩‍🔬 | `x` [a](javascript:b)"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folders of finished runs by head; not to be written to."""
    made: dict[str, Path] = {}

    def make(head: str) -> Path:
        if head not in made:
            folder = tmp_path_factory.mktemp("reports")
            here = write_place(folder / "model", head, layers=2)
            files: dict[str, Any] = {"train_file": here.train, "eval_file": here.dev, "test_file": here.test}
            made[head] = compressed(here, folder / "out", **files, sensitivity=True, weight_quantize_type="abs_max")
        return made[head]

    return make


def compressed(here: Place, output: Path, **options: Any) -> Path:
    options = {**QUICK, **options}
    result = tersely.compress(input_infer_model_path=str(here.graph), output_dir=output, **options)
    return result.output_dir


def content_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_page_of_each_task_says_what_the_result_says(head: str, runs: Callable[..., Path]) -> None:
    folder = runs(head)
    page, content = check_reports(folder), content_of(folder)
    titles = [heading.text for heading in page.all("h2")]
    expected = ["Score against speed", "Candidates", "Layers", "Rows whose answer changed"]
    expected += ["Which labels are taken for which"] if head == "SequenceClassification" else []
    assert titles == [*expected, "To run it again"]
    assert "also chose the model" in next(page.all("ul", wanted="stamps")).text
    assert "test rows, which chose nothing" in next(page.all("ul", wanted="stamps")).text
    assert content["sensitivity"]
    for name, harm in content["sensitivity"].items():
        (bar,) = (bar for bar in next(page.all("dl", wanted="bars")).all("div") if next(bar.all("dt")).text == name)
        assert next(bar.all("dd")).text == f"{harm:.4f}"
    (every,) = (
        table for table in page.all("table") if next(table.all("caption")).text == "Layers, tables and products"
    )
    assert len(list(next(every.all("tbody")).all("tr"))) == len(content["layers"])
    reasons = {layer["reason"] for layer in content["layers"] if layer["precision"] == "float"}
    assert reasons
    for reason in reasons:
        assert f"Float, {content['reasons'][reason]}: " in page.text


@pytest.mark.slow
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_rows_told_are_those_whose_answers_differ(head: str, runs: Callable[..., Path]) -> None:
    """Both artifacts answer the eval file anew; rows and counts are compared with what the run wrote."""
    folder = runs(head)
    changes = content_of(folder)["changes"]
    model = folder.parent / "model"
    rows = tersely.data.read(next(model.glob("dev.*")))
    predictor = tersely.runtime.load(folder / "best", engine="onnxruntime")
    task = predictor.task
    examples = task.read(rows, tersely.tasks.Columns(), labelled=True)
    fp32 = tersely.runtime.Predictor(task, predictor.encoder, tersely.engines.load("onnxruntime", model / "model.onnx"))
    plain, ours = (answers(model, examples) for model in (fp32, predictor))
    differing = [i for i, (answer, other) in enumerate(zip(plain, ours, strict=True)) if answer != other]
    assert changes["changed"] == len(differing) > 0
    assert changes["rows"] == len(examples)
    shown = {change["where"]: change for change in changes["shown"]}
    assert len(shown) == min(20, len(differing))
    assert set(shown) <= {rows.where(i) for i in differing}
    for i in differing:
        if (row := shown.get(rows.where(i))) is not None:
            texts = " ".join(row["texts"].values())
            words = str(rows.records[i].get("text") or rows.records[i].get("context") or rows.records[i]["words"][0])
            assert words[:20] in texts
            assert row["fp32"] != row["best"]
            if head == "SequenceClassification":
                assert row["gold"] == rows.records[i]["label"] == row["fp32"].split()[0]  # FP32 made the labels
                assert row["verdict"] == "worse"
            if head == "QuestionAnswering":
                assert (row["fp32"], row["best"]) == (plain[i] or "no answer", ours[i] or "no answer")
    if head == "SequenceClassification":
        assert (changes["worse"], changes["better"]) == (len(differing), 0)


def answers(predictor: Any, examples: list[Any]) -> list[Any]:
    """What a system says, as labels, tags or texts."""
    task = predictor.task
    features = task.features(examples, predictor.encoder)
    answered = task.decode(examples, features, predictor.run(features))
    return [
        next(getattr(answer, name) for name in ("tags", "text", "label") if hasattr(answer, name))
        for answer in answered
    ]


@pytest.mark.slow
def test_confusion_is_that_of_scikit_learn(runs: Callable[..., Path]) -> None:
    from sklearn.metrics import confusion_matrix

    folder = runs("SequenceClassification")
    content = content_of(folder)
    rows = tersely.data.read(next((folder.parent / "model").glob("dev.*")))
    model = tersely.runtime.load(folder / "best", engine="onnxruntime")
    golds = [row["label"] for row in rows]
    said = [answer.label for answer in model.predict([row["text"] for row in rows])]
    labels = content["confusion"]["labels"]
    assert content["confusion"]["best"] == confusion_matrix(golds, said, labels=labels).tolist()
    assert content["confusion"]["fp32"] == confusion_matrix(golds, golds, labels=labels).tolist()


@pytest.mark.slow
def test_run_without_labels_is_not_scored(runs: Callable[..., Path], tmp_path: Path) -> None:
    model = runs("SequenceClassification").parent / "model"
    texts = tmp_path / "texts.tsv"
    texts.write_text("text\n" + "\n".join(line.split("\t")[0] for line in (model / "dev.tsv").read_text().splitlines()))
    graph = str(model / "model.onnx")
    quick = {**QUICK, "weight_quantize_type": "abs_max"}  # so that answers change
    tersely.compress(input_infer_model_path=graph, train_file=texts, output_dir=tmp_path / "out", **quick)
    page = check_reports(tmp_path / "out")
    assert "not scored" in next(page.all("dl", wanted="tiles")).text
    assert "Nothing was scored" in next(page.all("ul", wanted="stamps")).text
    assert "Answers against speed" in [heading.text for heading in page.all("h2")]
    changes = content_of(tmp_path / "out")["changes"]
    assert "worse" not in changes
    assert changes["shown"]
    assert all("gold" not in row and row["where"].startswith(str(texts)) for row in changes["shown"])


@pytest.fixture
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A result written by hand: nothing of it is compressed."""
    return {
        "tersely_version": "0.1", "model": "mine", "task": "sequence_classification", "metric": "accuracy",
        "best": "mse128", "rule": "There is one.", "cpu": {"class": "vnni", "name": "CPU", "threads_of_timings": 1},
        "rows": {"scoring": 9, "chosen_on": "eval rows, which also chose"},
        "fp32": {"score": 0.8, "interval": [0.7, 0.9], "size": 4_000_000, "engine_by_batch": {"1": "onnxruntime"}},
        "candidates": [
            {"name": name, "score": 0.8 - i / 100, "size": 1_000_000 + i, "drop": i / 100, "same_answer": 1 - i / 50,
             "drop_interval": [-0.02, 0.03], "speed_by_batch": {"1": {"ratio": 2.0 + i, "spread": [1.9, 2.1]}}}
            for i, name in enumerate(("mse128", "KL128", "dynamic"))
        ],
    }  # fmt: skip


def written(folder: Path, content: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    write_report(folder)
    return folder


def test_result_of_an_older_version_gives_a_page_without_what_it_lacks(content: dict[str, Any], tmp_path: Path) -> None:
    page = check_reports(written(tmp_path, content))
    assert [heading.text for heading in page.all("h2")] == ["Score against speed", "Candidates", "To run it again"]
    least = {"tersely_version": "0", "best": "a", "candidates": [{"name": "a"}]}
    page = parse(draw_reports(least)["report.html"])
    assert [heading.text for heading in page.all("h2")] == ["Candidates", "To run it again"]


def test_entries_of_a_newer_version_are_passed_over(content: dict[str, Any]) -> None:
    newer = {**content, "shine": 1, "candidates": [{**candidate, "shine": 2} for candidate in content["candidates"]]}
    assert draw_reports(newer) == draw_reports(content)


@pytest.mark.parametrize("greater_is_better", [True, False])
def test_numbers_that_are_no_fractions_stay_as_they_are(
    content: dict[str, Any], tmp_path: Path, greater_is_better: bool
) -> None:
    content |= {"metric": "mse", "fraction": False, "greater_is_better": greater_is_better}
    content["fp32"] |= {"score": 12.5, "interval": [11.0, 14.0]}
    for candidate in content["candidates"]:
        candidate |= {"score": 12.5 + candidate["drop"] * (1 if greater_is_better else -1)}
    page = check_reports(written(tmp_path, content))
    assert ("(less is better)" in page.text) == (not greater_is_better)


def test_promise_that_was_not_kept_is_said_first(content: dict[str, Any], tmp_path: Path) -> None:
    content |= {"max_drop": 0.005, "met_max_drop": False}
    page = check_reports(written(tmp_path, content))
    first = next(next(page.all("ul", wanted="stamps")).all("li"))
    assert first.text == "Not met: no candidate keeps the drop to 0.50 points (--max_drop)."
    assert first.attributes["class"] == "bad"


def test_text_of_a_row_cannot_become_markup(content: dict[str, Any], tmp_path: Path) -> None:
    row = {"where": f"/data/{HOSTILE.replace('/', '')}:3", "texts": {"text": HOSTILE, "text_pair": HOSTILE}}
    row |= {"fp32": HOSTILE, "best": HOSTILE, "gold": HOSTILE, "verdict": "worse"}
    content |= {"changes": {"rows": 9, "changed": 1, "worse": 1, "better": 0, "shown": [row]}}
    content |= {"confusion": {"labels": [HOSTILE, "b"], "fp32": [[1, 2], [3, 4]], "best": [[1, 2], [4, 3]]}}
    content |= {"layers": [{"name": HOSTILE, "precision": "float", "reason": "small"}], "sensitivity": {HOSTILE: 0.1}}
    content |= {"reasons": {"small": HOSTILE}, "notes": [HOSTILE], "model": HOSTILE, "rule": HOSTILE}
    content |= {"settings": {"command": f"tersely compress --eval_file {HOSTILE}", "options": {"seed": HOSTILE}}}
    for candidate in content["candidates"]:
        candidate["name"] += HOSTILE
    content["best"] += HOSTILE
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    html, markdown = (path.read_text(encoding="utf-8") for path in write_report(folder))
    page = parse(html)  # raises where an element was closed by a text
    assert len(list(page.all("script"))) == 1
    assert "alert" not in next(page.all("script")).text
    texts = [text.text for text in page.all("bdi")]
    assert f"{HOSTILE} ⏎ {HOSTILE}" in texts
    assert HOSTILE in texts
    outside = re.sub(r"`{3,}.*?`{3,}", "", markdown, flags=re.DOTALL).replace("<!-- tersely report -->", "")
    assert "<" not in outside
    assert "\u202e" not in outside
    assert "](" not in outside.replace("\\](", "")
    hostile = 0
    for table in re.findall(r"(?:^\|.*\n?)+", outside, re.MULTILINE):
        lines = table.splitlines()
        assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {lines[1].count("|") + 1}, table
        hostile += any("alert(1)" in line for line in lines[2:])
    assert hostile > 1


def test_characters_that_no_page_may_hold_are_replaced(content: dict[str, Any], tmp_path: Path) -> None:
    row = {"where": "a:1", "texts": {"text": "bell \x07 null \x00 half \ud800"}, "fp32": "a", "best": "b"}
    content["changes"] = {"rows": 9, "changed": 1, "shown": [row]}
    html, markdown = (path.read_text(encoding="utf-8") for path in write_report(written(tmp_path, content)))
    for text in (html, markdown):
        assert "bell \ufffd null \ufffd half \ufffd" in text


def test_same_result_gives_the_same_bytes(content: dict[str, Any], tmp_path: Path) -> None:
    first, second = (written(tmp_path / name, content) for name in ("a", "b"))
    for name in ("report.html", "report.md"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.slow
def test_drawn_again_is_what_the_run_drew(runs: Callable[..., Path], tmp_path: Path) -> None:
    folder = runs("SequenceClassification")
    (tmp_path / "result.json").write_bytes((folder / "result.json").read_bytes())
    written = write_report(tmp_path)
    assert {path.name for path in written} == {"report.html", "report.md"}
    for path in written:
        assert path.read_bytes() == (folder / path.name).read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "not a finished compress run"),
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"best": 1}', "lacks the entry"),
        ('{"tersely_version": "0", "best": "a", "candidates": 5}', "'candidates' must be a list"),
        ('{"tersely_version": "0", "best": "a", "candidates": []}', "not among the result's candidates"),
    ],
)  # fmt: skip
def test_what_is_no_finished_run_is_refused_in_a_line(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_file_of_someone_else_is_not_replaced(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("my own notes")
    with pytest.raises(UserError, match="not written by tersely"):
        written(tmp_path, content)
    assert (tmp_path / "report.md").read_text() == "my own notes"
    assert not (tmp_path / "report.html").exists()


def test_report_needs_neither_torch_nor_an_engine(content: dict[str, Any], tmp_path: Path) -> None:
    written(tmp_path, content)
    code = "import sys; from tersely.cli import main; main(['report', sys.argv[1]]); "
    code += "assert not {'torch', 'transformers', 'onnx', 'onnxruntime', 'openvino'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "report.html"), str(tmp_path / "report.md")]
