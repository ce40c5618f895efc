"""`tersely.export`: a model folder as an artifact that runs without torch, or in the form of another program."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .. import artifact as artifacts
from .. import engines
from ..artifact import Artifact
from ..atomic import check_destination
from ..data import RowSource, rows_of
from ..errors import UserError, existing, refuse_idle
from ..measure.score import Score
from ..measure.tables import interval, points
from ..models.folder import open_folder
from ..progress import Progress, shown
from ..runtime.predictor import local_folder
from ..tasks import Task, from_json
from ..tasks.options import TaskOptions
from .layouts import Layout, OpenVinoLayout, TritonLayout, lay_out
from .probe import probe_examples
from .systems import task_and_columns

GRAPH = "onnx/model.onnx"
"""Where optimum and transformers.js look for an FP32 graph."""


@dataclass(frozen=True, repr=False)
class Exported:
    """What `tersely.export` wrote, and how far it is from what it was made of.

    Attributes:
        artifact: The folder, opened: `artifact.folder`, `artifact.manifest`.
        parity: The largest difference of a logit from `reference` on the probe's rows, by engine.
        score: The score on the rows; None where none were given.
        reference: What it was compared with: "torch", or the graph of the artifact that it was made of.
    """

    artifact: Artifact
    parity: Mapping[str, float]
    score: Score | None
    reference: str = "torch"

    @property
    def size(self) -> int:
        """Bytes of the graphs and their weights."""
        return sum(self.artifact.loaded_bytes(graph) for graph in self.artifact.manifest.graphs)

    def __repr__(self) -> str:
        """The folder, its task and size; the differences; the score."""
        task = self.artifact.manifest.task["name"]
        apart = ", ".join(f"{name} {value:.1e}" for name, value in self.parity.items())
        lines = [
            f"{self.artifact.folder}: {task}, graph {self.size / 1e6:.1f} MB",
            f"largest difference of a logit from {self.reference}: {apart}",
        ]
        if self.score is not None:
            lines.append(f"{self.score.metric} {points(self.score.value)} ({interval(self.score.interval)})")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Give plain types, as `tersely export --json` prints them."""
        manifest = self.artifact.manifest
        return {
            "graph": manifest.graphs[0].path,
            "task": manifest.task["name"],
            "max_abs_logit_difference": self.parity,
            "size_mb": self.size / 1e6,
            "score": manifest.score,
        }


def export(
    model: str | Path,
    *,
    output_dir: str | Path,
    openvino: bool = False,
    triton: bool | str = False,
    input_dtype: Literal["int64", "int32"] | None = None,
    eval_file: RowSource | None = None,
    overwrite: bool = False,
    # generated from the options: make docs
    task: str | None = None,
    metric: str | None = None,
    max_seq_length: int | None = None,
    doc_stride: int | None = None,
    n_best_size: int | None = None,
    max_answer_length: int | None = None,
    max_query_length: int | None = None,
    null_score_diff_threshold: float | None = None,
    no_answer: bool | None = None,
    answer_language: Literal["auto", "en", "zh"] | None = None,
    header: bool | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    words_column: str | None = None,
    tags_column: str | None = None,
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    # end of generated
    progress: Progress | bool | None = None,
) -> Exported:
    """Turn a fine-tuned model folder into an artifact that runs without torch, or an artifact into a form for others.

    The graph is compared with torch on real inputs, and refused if it disagrees.

    Args:
        model: A fine-tuned transformers folder; for `openvino` and `triton` an artifact too, also `hub:owner/name`.
        output_dir: Where the artifact goes.
        openvino: Write OpenVINO's own form, `openvino_model.xml` and `.bin`.
        triton: Write a Triton model repository, in which the model has this name; True: as its folder.
        input_dtype: The type of the graph's inputs ("int64").
        eval_file: Labelled rows, which give it a score: a file, a `datasets.Dataset`, or a list of mappings.
        overwrite: Replace an earlier result in `output_dir`.
        task: sequence_classification, multi_label_classification, regression, token_classification, question_answering
            (read from the model where it can be).
        metric: The number that chooses; the task's own unless set.
        max_seq_length: Tokens a sequence may have (128; question answering 384).
        doc_stride: Tokens that two windows of one context share (128, at most half of the room).
        n_best_size: Starts and ends to look at for an answer (20).
        max_answer_length: Tokens an answer may have (30).
        max_query_length: Tokens a question may have (64).
        null_score_diff_threshold: How much better 'no answer' must be to be given (0).
        no_answer: Questions may have no answer, as in SQuAD 2.
        answer_language: auto, en (SQuAD's rule) or zh (CMRC 2018's rule).
        header: Whether csv and tsv files begin with column names (seen by itself unless set).
        text_column: Column of the text.
        text_pair_column: Column of the second text.
        label_column: Column of the label.
        words_column: Column of the words.
        tags_column: Column of the tags.
        question_column: Column of the question.
        context_column: Column of the context.
        answers_column: Column of the answers.
        progress: A `Progress` of your own; None shows a bar on a terminal, False nothing.

    Returns:
        An `Exported`: the artifact, how far its logits are from torch's by engine, and the score.

    Raises:
        UserError: Where the model, the rows or an option cannot be taken, or `output_dir` is not empty.
        Failure: Where the graph does not give the model's answers.

    Example:
        >>> export("no/such/folder", output_dir="artifact")
        Traceback (most recent call last):
        tersely.errors.UserError: no/such/folder: There is no such model folder. Check the path.
    """
    arguments = locals()
    options, columns = task_and_columns(arguments)
    if openvino and triton is not False:
        raise UserError("The options 'openvino' and 'triton' are two forms.", hint="Export once for each.")
    path, bar = existing(local_folder(model), "model folder"), shown(progress)
    packed = artifacts.is_artifact(path)
    if packed:
        refuse_idle(arguments, TaskOptions.__dataclass_fields__, "a model folder")
        refuse_idle(arguments, ["input_dtype"], "a model folder")

    def examples(task: Task) -> list[Any] | None:
        return None if eval_file is None else task.read(rows_of(eval_file, header), columns, labelled=True)

    layout: Layout | None = OpenVinoLayout() if openvino else None
    if triton is not False:
        layout = TritonLayout(triton if isinstance(triton, str) and triton else path.resolve().name)
    if layout is None and packed:
        raise UserError("This is an artifact already.", where=str(path), hint="Other forms: --openvino, --triton.")
    # Before the export, which takes long.
    place = Path(output_dir)
    check_destination(place if layout is None else layout.place(place), overwrite=overwrite)
    if layout is None:
        from .from_model import write_artifact

        folder = open_folder(path, options)
        rows, dtype = examples(folder.task), input_dtype or "int64"
        return write_artifact(folder, place, input_dtype=dtype, examples=rows, overwrite=overwrite, progress=bar)
    engines.warm(layout.engine)
    with _opened(path, options, input_dtype or "int64", examples, bar) as opened:
        rows = examples(from_json(opened.manifest.task))
        done = lay_out(opened, place, layout, examples=rows, overwrite=overwrite, progress=bar)
    return Exported(done.artifact, {layout.engine: done.difference}, done.score, done.source.path)


@contextmanager
def _opened(
    path: Path,
    options: TaskOptions,
    input_dtype: str,
    examples: Callable[[Task], list[Any] | None],
    progress: Progress,
) -> Iterator[Artifact]:
    """The artifact that was named, or that of the model folder, which is gone afterwards."""
    if artifacts.is_artifact(path):
        yield artifacts.read(path)
        return
    from .from_model import write_artifact

    folder = open_folder(path, options)
    rows = examples(folder.task)
    # The rows of the probe alone: what is scored is the form that is written.
    probed = probe_examples(folder.task, rows) if rows else None
    with tempfile.TemporaryDirectory(prefix="tersely-") as scratch:
        place = Path(scratch) / path.resolve().name
        yield write_artifact(folder, place, input_dtype=input_dtype, examples=probed, progress=progress).artifact
