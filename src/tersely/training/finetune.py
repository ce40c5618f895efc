"""Fine-tune an encoder on a task from rows, thin over `transformers.Trainer`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedModel, set_seed

from .. import __version__, tasks
from ..atomic import atomic_folder, check_destination
from ..data.labels import discover_labels, labels_beside
from ..data.rows import Rows
from ..deploy.card import finetuned_card, score_note
from ..engines.torch import input_names
from ..errors import UserError
from ..measure.score import Score
from ..models import folder
from ..models.torch_folder import cannot_load, check_finite, quiet_transformers, with_weights
from ..processes import on_all
from ..progress import SILENT, Progress
from ..tasks import Columns, Task
from ..tasks.options import TaskOptions
from ..tasks.sequence_classification import LABEL, MULTI, REGRESSION, label_list
from ..tasks.token_classification import TAGS
from .arguments import arguments_with, steps_of
from .batches import Collator, FeatureDataset
from .checkpoints import as_os_errors, fingerprint, forget_finished, kept_for_later, resume, work_folder
from .isolated import isolated
from .model_folder import write_notes
from .scored_trainer import ScoredTrainer, Scorer, ShowProgress


@dataclass(frozen=True)
class Finetuned:
    """Where the model lies, its task, and its score on the eval rows (those that chose its checkpoint)."""

    folder: Path
    task: Task
    score: Score
    steps: int


@dataclass(frozen=True)
class LabelledRows:
    """Rows that train, rows that choose the checkpoint and score it, and which of their columns hold what."""

    train: Rows
    evaluation: Rows
    columns: Columns = field(default_factory=Columns)


def finetune(
    model: str | Path,
    rows: LabelledRows,
    output_dir: str | Path,
    options: TaskOptions,
    training: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Finetuned:
    """Train, keep the best checkpoint by the task's metric, write an ordinary transformers folder.

    `training` holds options of `transformers.TrainingArguments`. A run that was killed goes on from its last whole
    checkpoint when it is started again with the same input.
    """
    output = Path(output_dir)
    work = work_folder(output)
    forget_finished(work, output)
    check_destination(output, overwrite=overwrite)
    config = folder.read_config(model)
    task = _task(model, config, rows, options)
    encoder = folder.read_encoder(model, config)
    examples, held_out = (task.read(part, rows.columns, labelled=True) for part in (rows.train, rows.evaluation))
    done = on_all(_train, model, examples, Scorer(task, encoder, held_out), training or {}, work, progress=progress)
    _write(done, model, task, output, overwrite)
    shutil.rmtree(work, ignore_errors=True)
    return Finetuned(output, task, done.score, done.steps)


@dataclass(frozen=True)
class _Trained:
    model: PreTrainedModel
    score: Score
    steps: int
    mark: str


def _train(
    path: str | Path,
    examples: Sequence[Any],
    scorer: Scorer,
    training: Mapping[str, Any],
    work: Path,
    *,
    progress: Progress = SILENT,
) -> _Trained:
    """Train as the best checkpoint has it; on every process the same."""
    task, encoder = scorer.task, scorer.encoder
    with isolated():
        best = {"metric_for_best_model": f"eval_{task.metric}", "load_best_model_at_end": True}
        greater = task.metrics[task.metric].greater_is_better
        arguments = arguments_with(training, work, **best, greater_is_better=greater)
        set_seed(arguments.seed)
        model = _model(path, task)
        check_finite(model, str(path))
        dataset = FeatureDataset(task, examples, encoder)
        mark = fingerprint(path, task, arguments, examples, scorer.examples, [arguments.world_size])
        with arguments.main_process_first(local=False):
            begun = resume(work, mark, progress)
        with kept_for_later(work):
            trainer = TaskTrainer(
                scorer=scorer,
                model=model,
                args=arguments,
                train_dataset=dataset,
                eval_dataset=scorer.examples,
                data_collator=Collator(encoder, input_names(model)),
            )
            with progress.track("fine-tune", steps_of(arguments, len(dataset))) as advance:
                shown = ShowProgress(advance, scorer, at_end=1)
                trainer.show(shown)
                trainer.run(begun)
                check_finite(model, "the trained model")
                final = scorer.score(model, progress=shown)
        return _Trained(model, final, trainer.state.global_step, mark)


class TaskTrainer(ScoredTrainer):
    """Scores the model that it trains."""

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Score the model as it is now."""
        scored = self.score(self.model, resamples=0)
        return self.log_scores({f"{metric_key_prefix}_{name}": value for name, value in scored.metrics.items()})


def _task(path: str | Path, config: Mapping[str, Any], rows: LabelledRows, options: TaskOptions) -> Task:
    """The task that was asked for with the labels of the rows, or the one that the model has already."""
    if options.task is None:
        if not any(tasks.task_of_class(name) for name in config.get("architectures") or ()):
            hint = f"Name one with --task: {', '.join(tasks.kinds())}."
            raise UserError("The model has no head that says its task.", where=str(path), hint=hint)
        return folder.read_task(path, config, options)
    name, problem = tasks.kinds()[options.task]
    settings: dict[str, Any] = {}
    if "labels" in tasks.settings_of(name):
        settings["labels"] = find_labels(rows.train, rows.columns, name, problem)
    if problem:
        settings["problem"] = problem
    return folder.make_task(name, settings, replace(options, task=None), config)


def find_labels(rows: Rows, columns: Columns, task: str, problem: str | None) -> tuple[str, ...]:
    """All labels (or tags) that occur, in order; a regression has the one 'LABEL_0'.

    A `labels.json` beside the file, as CLUE's data sets have, says them in its own order.
    """
    if problem == REGRESSION:
        return ("LABEL_0",)
    tags = tasks.facts_of(task).answers_for == "tokens"
    option = "tags_column" if tags else "label_column"
    named = columns.tags or columns.label if tags else columns.label
    column = rows.column(option, named, TAGS if tags else LABEL)
    if column is None:
        what = f"There is no {'tag' if tags else 'label'} column. Columns here: {', '.join(rows.columns)}."
        raise UserError(what, where=rows.source, hint=f"Name it with --{option}.")
    if problem == MULTI:
        rows = rows.map(lambda record: {column: label_list(record.get(column))}, [column])
    elif not tags:
        for index, record in enumerate(rows):
            if isinstance(record.get(column), (list, tuple)):
                hint = "For several labels a row use --task multi_label_classification."
                raise rows.error(index, "The label is a list.", hint=hint)
        # Blanks around a label are not part of it, as for the task that reads it.
        rows = rows.map(lambda record: {column: _stripped(record.get(column))}, [column])
    found = discover_labels(rows, column, None if tags else labels_beside(rows.source))
    if len(found) < 2 and problem != MULTI:
        raise UserError(f"All rows have the same label, '{found[0]}': nothing can be learnt.", where=rows.source)
    return found


def _stripped(label: Any) -> Any:
    return label.strip() if isinstance(label, str) else label


def _model(path: str | Path, task: Task) -> PreTrainedModel:
    names: dict[str, Any] = {"num_labels": len(task.labels) or 2}  # a reader has a start and an end
    if task.labels:
        names["id2label"] = dict(enumerate(task.labels))
        names["label2id"] = {label: index for index, label in enumerate(task.labels)}
    if task.facts.answers_for == "row":
        names["problem_type"] = task.loss
    try:
        config = AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False, **names)
        kind = getattr(transformers, f"AutoModelFor{task.facts.head}")
        model, report = with_weights(kind, config, path, ignore_mismatched_sizes=True)
    except Exception as error:  # transformers, safetensors and torch.load each raise kinds of their own
        raise cannot_load("The model", path, error) from error
    # A new head, and a pooler that a language model never had, are drawn anew; the encoder itself must be there.
    absent = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lost = sorted(x for x in absent if x.startswith(f"{model.base_model_prefix}.") and "pooler" not in x)
    if lost:
        what = f"The weights lack '{lost[0]}'" + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
        raise UserError(f"{what}, or have them in another shape.", where=str(path), hint="They do not fit config.json.")
    return model


def _write(done: _Trained, model: str | Path, task: Task, output: Path, overwrite: bool) -> None:
    with atomic_folder(output, overwrite=overwrite) as scratch:
        with as_os_errors(), quiet_transformers():
            done.model.save_pretrained(scratch)
        folder.read_tokenizer(model).save_pretrained(scratch)
        scored = score_note(done.score, "torch")
        origin = folder.read_provenance(model, folder.read_config(model))
        name = f"{Path(model).resolve().name}, fine-tuned"
        text = finetuned_card(name, task.name, origin, {**scored, "on": "eval rows, which also chose"})
        (scratch / "README.md").write_text(text, encoding="utf-8")
        notes = {
            "task": tasks.to_json(task),
            "score": {name: scored[name] for name in ("metric", "value", "rows", "on")},
            "tersely_version": __version__,
            "run": done.mark,
            "files": sorted(path.name for path in scratch.iterdir()),
        }
        write_notes(scratch, notes)
