"""Bad input to `tersely compress`, case by case: exit code 2, one line that says what and where, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from commands import Ran, Tersely
from compressible import Place, layer_name
from tersely import compress
from tersely.cli import main
from tersely.errors import UserError

pytestmark = pytest.mark.usefixtures("short_timings")

Folder = Callable[..., Path]


@pytest.fixture
def own(place: Place, tmp_path: Path) -> Place:
    """A copy, to be damaged."""
    return Place(Path(shutil.copytree(place.folder, tmp_path / "own")), place.model)


def words(place: Place, output: Path, *more: Any) -> list[Any]:
    files = ["--train_file", place.train, "--eval_file", place.dev]
    default = [] if "--strategy" in more else ["--strategy", "ptq"]
    return ["compress", "--input_infer_model_path", place.graph, *files, "--output_dir", output, *default, *more]


def check(shown: Ran, said: str, folder: Path, before: dict[Path, bytes | None]) -> None:
    assert (shown.code, shown.out) == (2, ""), shown.err
    assert shown.err.startswith("tersely: ")
    assert shown.err.count("\n") == 1, shown.err
    assert said in shown.err
    assert "a bug" not in shown.err
    assert content(folder) == before


def content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


OPTIONS: dict[str, tuple[list[str], str]] = {
    "unknown algorithm": (["--algo_list", "msse"], "The '--algo_list' option cannot be 'msse'. Did you mean 'mse'?"),
    "batch size 0": (["--batch_size_list", "0"], "'--batch_size_list' option must be at least 1. Got 0."),
    "no calibration rows": (["--calibration_rows", "0"], "'--calibration_rows' option must be at least 1"),
    "two quantizers": (["--strategy", "ptq+dynamic"], "holds ptq and dynamic"),
    "unknown step": (["--strategy", "ptq+embedings"], "Did you mean 'embeddings'?"),
    "empty strategy": (["--strategy", " "], "The strategy is empty."),
    "doubled step": (["--strategy", "ptq+ptq"], "names 'ptq' twice"),
    "bare graph trained": (["--strategy", "qat"], "The step 'qat' needs a model folder, not a bare graph"),
    "bare graph": (["--strategy", "dynabert+ptq"], "The step 'dynabert' needs a model folder, not a bare graph"),
    "bare graph cut": (["--strategy", "ptq+prune_embeddings"], "The step 'prune_embeddings' needs a model folder"),
    "width without dynabert": (["--width_mult_list", "1/2"], "'--width_mult_list' option (1/2) has no effect with"),
    "epochs without dynabert": (["--num_train_epochs", "1"], "'--num_train_epochs' option has no effect with the"),
    "any option of training": (["--adam_beta1", "0.8"], "'--adam_beta1' option has no effect with the strategy 'ptq'"),
    "tokens without a cut": (["--max_vocab_size", "99"], "It is for prune_embeddings."),
    "smooth without effect": (["--strategy", "dynamic", "--smooth", "0.5"], "'--smooth' option (0.5) has no effect"),
    "adaround of dynamic": (["--strategy", "dynamic", "--round_type", "adaround"], "'--round_type' option"),
    "auto of dynamic": (["--strategy", "dynamic", "--skip_layers", "auto"], "'--skip_layers' option (auto)"),
    "tolerance alone": (["--origin_tolerance", "0.1"], "'--origin_tolerance' option has no effect without"),
    "type of a graph": (["--input_dtype", "int32"], "'--input_dtype' option has no effect with --input_infer"),
    "points": (["--max_drop", "1"], "Scores are fractions: 1 in points is 0.01."),
    "origin in points": (["--origin_metric", "85"], "Scores are fractions: 85 in points is 0.85."),
    "unknown engine": (["--engines", "onxruntime"], "Did you mean 'onnxruntime'?"),
    "engine without int8": (["--engines", "torch"], "'--engines' option cannot be 'torch'"),
    "another task": (["--task", "question_answering"], "(option '--task')"),
    "option of another task": (["--n_best_size", "3"], "The '--n_best_size' option has no effect"),
    "too long": (["--max_seq_length", "4000"], "but the model has 96 positions"),
    "no such metric": (["--metric", "acuracy"], "Did you mean 'accuracy'?"),
    "no such column": (["--text_column", "txt"], "There is no column 'txt'"),
    "no such option": (["--calibration_row", "3"], "There is no option '--calibration_row'."),
    "no such rows": (["--test_file", "none.tsv"], "none.tsv: There is no such file."),
    "pattern of nothing": (["--skip_layers", "*poler*"], "*poler*"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options_are_named(case: str, tersely: Tersely, place: Place, tmp_path: Path) -> None:
    more, said = OPTIONS[case]
    check(tersely(*words(place, tmp_path / "out", *more)), said, tmp_path, {})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--strategy", "ptq"], "The strategy 'ptq' needs rows to calibrate on."),
        (["--strategy", "dynamic", "--max_drop", "0.1"], "'--max_drop' option has no effect without labelled rows"),
        (["--strategy", "dynamic", "--origin_metric", "0.1"], "'--origin_metric' option has no effect without"),
        (["--strategy", "dynamic", "--label_column", "x"], "'--label_column' option has no effect without"),
        (["--strategy", "dynamic", "--header", "true"], "'--header' option has no effect without"),
        (["--strategy", "dynamic", "--data_dir", "x"], "'--data_dir' option has no effect without --dataset."),
    ],
)
def test_options_that_need_rows_are_refused_without(
    more: list[str], said: str, tersely: Tersely, place: Place, tmp_path: Path
) -> None:
    command = ["compress", "--input_infer_model_path", place.graph, "--output_dir", tmp_path / "out"]
    check(tersely(*command, *more), said, tmp_path, {})


def test_no_model_is_said(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    shown = tersely("compress", "--strategy", "ptq", "--eval_file", place.dev, "--output_dir", tmp_path / "out")
    check(shown, "A model is needed. Name its folder, or a graph with --input_infer_model_path.", tmp_path, {})


def change(place: Place, name: str, how: Callable[[Any], Any]) -> None:
    proto = onnx.load(place.graph)
    for tensor in proto.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(how(numpy_helper.to_array(tensor).copy()), name))
    onnx.save(proto, place.graph)


def with_nan(array: Any) -> Any:
    array[0, 0] = np.nan
    return array


def other_input(place: Place) -> None:
    proto = onnx.load(place.graph)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("position_ids", onnx.TensorProto.INT64, ["b", "l"]))
    onnx.save(proto, place.graph)


def half(place: Place) -> None:
    place.graph.write_bytes(place.graph.read_bytes()[: place.graph.stat().st_size // 2])


GRAPHS: dict[str, tuple[Callable[[Place], Any], str]] = {
    "not onnx": (lambda place: place.graph.write_text("no graph"), "not an ONNX file"),
    "half a file": (half, "model.onnx: "),
    "empty file": (lambda place: place.graph.write_bytes(b""), "not an ONNX file"),
    "gone": (lambda place: place.graph.unlink(), "There is no such ONNX file."),
    "unexpected input": (other_input, "The graph has an unexpected input 'position_ids'."),
    "nan": (lambda place: change(place, layer_name(1), with_nan), f"The weight '{layer_name(1)}' holds NaN."),
    "half precision": (
        lambda place: change(place, layer_name(1), lambda array: array.astype(np.float16)), "model.onnx: ",
    ),
    "no config": (lambda place: (place.folder / "config.json").unlink(), "no config.json beside the graph"),
    "no tokenizer": (lambda place: (place.folder / "tokenizer.json").unlink(), "has no tokenizer"),
}  # fmt: skip


@pytest.mark.parametrize("case", GRAPHS)
def test_bad_graphs_are_named(case: str, tersely: Tersely, own: Place, tmp_path: Path) -> None:
    damage, said = GRAPHS[case]
    damage(own)
    before = content(tmp_path)
    shown = tersely(*words(own, tmp_path / "out"))
    check(shown, said, tmp_path, before)
    assert str(own.folder) in shown.err


def test_quantized_graph_is_not_quantized_twice(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    done = tersely(*words(place, tmp_path / "out", "--strategy", "dynamic", "--engines", "onnxruntime"))
    assert done.code == 0, done.err
    best = tmp_path / "out" / "best"
    before = content(tmp_path)
    command = ["compress", "--strategy", "dynamic", "--output_dir", tmp_path / "out2"]
    graph = best / "onnx" / "model_onnxruntime.onnx"
    check(tersely(*command, "--input_infer_model_path", graph), "already quantized", tmp_path, before)
    check(tersely(*command, "--model_name_or_path", best), "This is an artifact already", tmp_path, before)
    (best / "notes.txt").write_text("mine")
    before = content(tmp_path)
    again = words(place, tmp_path / "out", "--strategy", "dynamic", "--overwrite_output_dir")
    check(tersely(*again), "'best' is or holds what this command did not write (best/notes.txt)", tmp_path, before)


ROWS = {
    "empty": (b"", "rows.tsv", "rows.tsv: "),
    "missing column": (b"text\tmark\nfine\tgood\n", "rows.tsv", "There is no label column."),
    "label not in the set": (b"text\tlabel\nfine\tgood\nfine\tgreat\n", "rows.tsv", "rows.tsv:3: The label 'great'"),
    "not utf-8": (b"text\tlabel\nfine\tgood\n\xff\xfe\tgood\n", "rows.tsv", "rows.tsv:3: "),
    "text is a number": (b'{"text": 4, "label": "good"}\n', "rows.jsonl", "rows.jsonl:1: "),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("flag", ["--eval_file", "--test_file"])
def test_bad_rows_are_named_before_any_work(
    flag: str, case: str, tersely: Tersely, place: Place, tmp_path: Path
) -> None:
    raw, name, said = ROWS[case]
    (tmp_path / name).write_bytes(raw)
    before = content(tmp_path)
    check(tersely(*words(place, tmp_path / "out", flag, tmp_path / name)), said, tmp_path, before)


def test_wrong_origin_stops_with_nothing_written(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    shown = tersely(*words(place, tmp_path / "new" / "out", "--origin_metric", "0.5"))
    check(shown, "The FP32 model scores accuracy 1.0000, '--origin_metric' says 0.5000", tmp_path, {})


def test_output_that_cannot_be_written_is_refused(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    before = content(tmp_path)
    for output, said in (("file", "The output folder is a file."), ("file/out", "cannot be written")):
        check(tersely(*words(place, tmp_path / output)), said, tmp_path, before)


def test_read_only_disk_is_refused(tersely: Tersely, place: Place, mounted: Callable[..., Path]) -> None:
    disk = mounted("size=1m,ro")
    shown = tersely(*words(place, disk / "out"))
    check(shown, "cannot be written", disk, {})


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A small disk of its own, where the machine lets us mount one."""
    disks: list[Path] = []

    def mount(options: str) -> Path:
        disk = tmp_path / f"disk{len(disks)}"
        disk.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this machine lets nobody mount a disk ({done.stderr.strip()})")
        disks.append(disk)
        return disk

    if shutil.which("mount") is None:
        pytest.skip("there is no 'mount' here")
    yield mount
    for disk in disks:
        subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.parametrize("size", [64, 200, 330], ids=lambda size: f"{size}k")
def test_full_disk_is_said_and_leaves_nothing(
    size: int, tersely: Tersely, place: Place, mounted: Callable[..., Path]
) -> None:
    """The smallest is refused at the start, the others run full on the way."""
    disk = mounted(f"size={size}k")
    shown = tersely(*words(place, disk / "new" / "out", "--engines", "onnxruntime"))
    said = "The disk is too full: the run needs at least" if size == 64 else "Writing failed: No space left on device"
    last = shown.err.splitlines(keepends=True)[-1]  # after lines of progress, if the machine was busy
    check(Ran(shown.code, shown.out, last), said, disk, {})


@pytest.fixture(scope="module")
def largest(place: Place, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Bytes of the largest file that a run without a limit leaves."""
    output = tmp_path_factory.mktemp("unlimited") / "out"
    assert main([str(word) for word in words(place, output, "--strategy", "ptq+embeddings")]) == 0
    return max(path.stat().st_size for path in output.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.8, 1], ids=["graph", "weights", "largest"])
def test_limit_on_files_is_said_and_leaves_nothing(share: float, largest: int, place: Place, tmp_path: Path) -> None:
    """Writes fail as on a full disk, without any rights, and be it at the last byte."""
    limit = int(share * largest) - 1
    code = (
        "import resource, sys\nfrom tersely.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [str(word) for word in words(place, tmp_path / "new" / "out", "--strategy", "ptq+embeddings")]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=240)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Writing failed: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_full_disk_while_exporting_a_model_is_said(model_folder: Folder, tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom tersely.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = ["compress", "--model_name_or_path", str(model_folder()), "--strategy", "dynamic", "--output_dir"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command, str(tmp_path / "out")], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_folder_without_rights_is_refused(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    before = content(tmp_path)
    check(tersely(*words(place, tmp_path / "locked" / "out")), "cannot be written", tmp_path, before)


MODELS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "weights cut off": (lambda folder: (folder / "model.safetensors").write_bytes(b"\x08" * 40), "cannot be loaded"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "The model folder has no config.json."),
    "bare encoder": (
        lambda folder: (folder / "config.json").write_text(
            json.dumps({**json.loads((folder / "config.json").read_text()), "architectures": ["BertModel"]})
        ),
        "has no head for a task",
    ),
    "gone": (shutil.rmtree, "There is no such"),
}


@pytest.mark.parametrize("case", MODELS)
def test_bad_model_folder_is_named(
    case: str, tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    damage, said = MODELS[case]
    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    damage(folder)
    before = content(tmp_path)
    shown = tersely(
        "compress", "--model_name_or_path", folder, "--strategy", "ptq", "--eval_file", files["text"], "--output_dir",
        tmp_path / "out",
    )  # fmt: skip
    check(shown, said, tmp_path, before)
    assert str(folder) in shown.err


@pytest.fixture
def unwritten(tmp_path: Path) -> Iterator[Path]:
    """A file of rows that nobody writes: who opens it waits, here until a timer rings."""

    def ring(*_: object) -> None:
        raise TimeoutError("the rows were read")

    os.mkfifo(tmp_path / "train.tsv")
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60, 5)
    yield tmp_path / "train.tsv"
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("case", ["gone", "no config", "bare encoder"])
def test_bad_model_folder_is_named_before_rows_are_read(
    case: str, tersely: Tersely, model_folder: Folder, unwritten: Path, tmp_path: Path
) -> None:
    damage, said = MODELS[case]
    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    damage(folder)
    shown = tersely(
        "compress", folder, "--strategy", "ptq", "--train_file", unwritten, "--output_dir", tmp_path / "out"
    )
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith(f"tersely: {folder}")
    assert said in shown.err
    with pytest.raises(UserError, match=said):
        compress(folder, strategy="ptq", train_file=unwritten, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_bad_graph_and_output_are_named_before_rows_are_read(
    tersely: Tersely, own: Place, unwritten: Path, tmp_path: Path
) -> None:
    def refused(**keywords: Any) -> str:
        keywords = {
            "input_infer_model_path": own.graph,
            "train_file": unwritten,
            "output_dir": tmp_path / "out",
            **keywords,
        }
        shown = tersely(
            "compress", "--strategy", "ptq", *(w for name in keywords for w in (f"--{name}", keywords[name]))
        )
        with pytest.raises(UserError) as caught:
            compress(strategy="ptq", **keywords)
        caught.value.on_command_line = True
        assert (shown.code, shown.err) == (2, f"tersely: {caught.value}\n")
        return shown.err

    assert "There is no such ONNX file." in refused(input_infer_model_path=own.folder / "none.onnx")
    assert "none.tsv: There is no such file." in refused(eval_file=tmp_path / "none.tsv")
    assert "The output folder is a file." in refused(output_dir=own.dev)
    (own.folder / "config.json").unlink()
    assert "no config.json beside the graph" in refused()


def test_nan_in_a_model_is_named(tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    before = content(tmp_path)
    shown = tersely(
        "compress", "--model_name_or_path", folder, "--strategy", "dynamic", "--output_dir", tmp_path / "out"
    )
    last = Ran(shown.code, shown.out, "".join(shown.err.splitlines(keepends=True)[-1:]))
    check(last, "classifier.weight' holds NaN.", tmp_path, before)
