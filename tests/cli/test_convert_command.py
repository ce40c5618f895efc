"""`tersely convert`: what it prints, and that the next command takes what it wrote."""

from __future__ import annotations

from pathlib import Path

from commands import Tersely
from paddle_checkpoints import LABELS, build_paddle


def test_prints_class_labels_and_what_was_left_out(tersely: Tersely, tmp_path: Path) -> None:
    build_paddle(tmp_path / "paddle", "ernie", "TokenClassification")
    ran = tersely("convert", tmp_path / "paddle", "--output-dir", tmp_path / "out")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'out'}: ErnieForTokenClassification, 3 labels, 0.0 million parameters")
    assert "has no such part: 'ernie.pooler.dense.bias', 'ernie.pooler.dense.weight'" in lines[1]
    assert lines[-1] == f"Next: tersely compress {tmp_path / 'out'} …"


def test_json_says_the_same(tersely: Tersely, tmp_path: Path) -> None:
    build_paddle(tmp_path / "paddle", "electra", vocab_size=20)
    words = ["convert", "--from_paddle", tmp_path / "paddle", "--output_dir", tmp_path / "out", "--json"]
    found = tersely(*words).json
    assert (found["output_dir"], found["architecture"]) == (str(tmp_path / "out"), "ElectraForSequenceClassification")
    assert (tuple(found["labels"]), found["left_out"], found["rows_without_token"]) == (LABELS, [], 6)


def test_converted_model_is_scored(tersely: Tersely, tmp_path: Path) -> None:
    build_paddle(tmp_path / "paddle", "bert")
    tersely("convert", "--from_paddle", tmp_path / "paddle", "--output_dir", tmp_path / "out")
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na film of quiet grace\tgood\nfilms\tbad\n")
    ran = tersely("evaluate", "--model_name_or_path", tmp_path / "out", "--eval_file", rows, "--json")
    assert ran.code == 0, ran.err
