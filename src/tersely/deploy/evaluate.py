"""`tersely.evaluate`: score a model folder or an artifact on labelled rows, in the engine that will run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..data import RowSource, rows_of
from ..engines.cpu import cpu
from ..errors import UserError, refuse_idle
from ..measure.score import Comparison, Score, compare, score
from ..measure.tables import aligned, interval, points
from ..progress import Progress, shown
from ..runtime.predictor import local_folder
from .systems import System, opener, task_and_columns


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What `tersely.evaluate` found: the score, and the drop from the other model if one was named.

    Attributes:
        model: The folder's name.
        engine: The engine that ran it.
        threads: How many threads that took.
        score: Every metric of the task, the primary one with its 95 % interval; all as fractions.
        comparison: The drop from `against` with its interval, and how many answers stayed; None without `against`.
    """

    model: str
    engine: str
    threads: int
    score: Score
    comparison: Comparison | None = None

    @property
    def value(self) -> float:
        """The primary metric, as a fraction."""
        return self.score.value

    def __repr__(self) -> str:
        """A small table: a line for each metric, and the drop."""
        return "\n".join([self.title, aligned(*self.table), *filter(None, [self.drop_line])])

    @property
    def title(self) -> str:
        """The model, the rows, and what it ran on."""
        where = f"{self.engine}, {self.threads} threads, CPU class {cpu().cpu_class}"
        return f"{self.model}: {self.score.rows} rows in {self.score.seconds:.1f} s on {where}"

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the lines of the table, scores in points."""
        scored = self.score
        rows = [[scored.metric, points(scored.value), interval(scored.interval)]]
        rows += [[name, points(value), ""] for name, value in scored.metrics.items() if name != scored.metric]
        return ["metric", "score", "95 % interval"], rows

    @property
    def drop_line(self) -> str:
        """The comparison as a line; empty where nothing was compared."""
        if self.comparison is None or self.comparison.drop is None:
            return ""
        drop, change = self.comparison.drop, self.comparison.mean_abs_logit_change
        return (
            f"drop {points(drop.drop)} points ({interval((drop.low, drop.high))}), "
            f"same answer {100 * self.comparison.same_answer:.2f} %, "
            f"mean |Δlogit| {'not comparable' if change is None else f'{change:.4f}'}"
        )

    def as_json(self) -> dict[str, Any]:
        """Give plain types, as `tersely evaluate --json` prints them."""
        here, scored = cpu(), self.score
        result: dict[str, Any] = {
            "model": self.model,
            "score": scored.value,
            "metric": scored.metric,
            "metrics": scored.metrics,
            "interval": scored.interval,
            "rows": scored.rows,
            "seconds": scored.seconds,
            "engine": self.engine,
            "threads": self.threads,
            "cpu": {"class": here.cpu_class, "name": here.name},
        }
        if self.comparison is not None and self.comparison.drop is not None:
            drop = self.comparison.drop
            result |= {
                "drop": drop.drop,
                "drop_interval": [drop.low, drop.high],
                "same_answer": self.comparison.same_answer,
                "mean_abs_logit_change": self.comparison.mean_abs_logit_change,
            }
        return result


def evaluate(
    model: str | Path,
    *,
    eval_file: RowSource,
    engine: str = "auto",
    against: str | Path | None = None,
    against_engine: str | None = None,
    threads: int | None = None,
    batch_size: int = 16,
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
) -> Evaluation:
    """Score a model folder or an artifact on labelled rows, in the engine that will run it.

    Args:
        model: A model folder or an artifact, also `hub:owner/name`.
        eval_file: The labelled rows: a file, a `datasets.Dataset`, or a list of mappings.
        engine: "auto", "torch", "onnxruntime", "openvino", or with its precision "openvino-bf16".
        against: A second model; the drop from it is measured on the same rows.
        against_engine: The engine of the second model ("auto").
        threads: How many threads the engine may use (all cores).
        batch_size: Rows a batch.
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
        An `Evaluation`: `value` is the score as a fraction, `score` and `comparison` hold the rest.

    Raises:
        UserError: Where the model, the rows or an option cannot be taken.

    Example:
        >>> evaluate("my-model", eval_file=[{"text": "good", "label": "yes"}], against_engine="torch")
        Traceback (most recent call last):
        tersely.errors.UserError: The 'against_engine' option has no effect without against. Leave it out.
    """
    options, columns = task_and_columns(locals())
    if not against:
        refuse_idle({"against_engine": against_engine}, ["against_engine"], "--against")
    progress = shown(progress)
    rows = rows_of(eval_file, header)
    with opener(options, progress) as open_system:
        system = open_system(local_folder(model), engine, threads)
        other = None
        if against:
            other = open_system(local_folder(against), against_engine or "auto", threads)
            _check_alike(system, other)
        examples = system.predictor.task.read(rows, columns, labelled=True)
        scored = _score(system, examples, batch_size, progress)
        comparison = None
        if other is not None:
            reference = _score(other, examples, batch_size, progress)
            comparison = compare(system.predictor.task, reference, scored)
    return Evaluation(system.model, system.engine, system.predictor.engine.threads, scored, comparison)


def _check_alike(system: System, other: System) -> None:
    """Answers can be set against each other where both mean the same by a label's number."""
    ours, theirs = system.predictor.task, other.predictor.task
    if ours.name != theirs.name or ours.labels != theirs.labels:
        said = [f"{task.name} ({', '.join(task.labels[:6])})" if task.labels else task.name for task in (ours, theirs)]
        raise UserError(f"The two models cannot be compared: {said[0]} against {said[1]}.", where=other.model)


def _score(system: System, examples: list[Any], batch_size: int, progress: Progress) -> Score:
    predictor = system.predictor.with_batch_size(batch_size)
    return score(predictor, examples, title=f"evaluate {system.model} on {system.engine}", progress=progress)
