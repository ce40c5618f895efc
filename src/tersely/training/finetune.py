"""Fine-tune an encoder on a task from rows, thin over `transformers.Trainer`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel, set_seed
from transformers.trainer_callback import PrinterCallback

from .. import __version__, tasks
from ..atomic import atomic_folder, check_destination
from ..data.rows import Rows
from ..deploy.card import finetuned_card, score_note
from ..engines.torch import input_names
from ..errors import Failure, UserError
from ..measure.score import Score, score
from ..models import folder
from ..models.carve.model import model_class
from ..models.torch_folder import cannot_load, check_finite, quiet_transformers
from ..processes import on_all
from ..progress import SILENT, Progress
from ..tasks import Columns, Encoder, Task
from ..tasks.options import TaskOptions
from .batches import Collator, FeatureDataset
from .disk import as_os_errors
from .isolated import isolated
from .labels import find_labels
from .resume import fingerprint, forget_finished, resume, work_folder
from .settings import steps_of, training_arguments
from .task_trainer import ShowProgress, TaskTrainer


@dataclass(frozen=True)
class Finetuned:
    """Where the model lies, its task, and its score on the eval rows (those that chose its checkpoint)."""

    folder: Path
    task: Task
    score: Score
    steps: int


def finetune(
    model_name_or_path: str | Path,
    train: Rows,
    evaluation: Rows,
    output_dir: str | Path,
    *,
    options: TaskOptions,
    columns: Columns | None = None,
    training: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Finetuned:
    """Train, keep the best checkpoint by the task's metric, write an ordinary transformers folder.

    `training` holds options of `transformers.TrainingArguments`. A run that was killed goes on from its last whole
    checkpoint when it is started again with the same input.
    """
    work = work_folder(Path(output_dir))
    forget_finished(work, Path(output_dir))
    check_destination(output_dir, overwrite=overwrite)
    columns = columns or Columns()
    config = folder.read_config(model_name_or_path)
    task = _task(model_name_or_path, config, train, columns, options)
    encoder = folder.read_encoder(model_name_or_path, config)
    examples = task.read(train, columns, labelled=True)
    eval_examples = task.read(evaluation, columns, labelled=True)
    done = on_all(
        _train, model_name_or_path, task, encoder, examples, eval_examples, training or {}, work, progress=progress
    )
    _write(done, model_name_or_path, task, Path(output_dir), overwrite)
    shutil.rmtree(work, ignore_errors=True)
    return Finetuned(Path(output_dir), task, done.score, done.steps)


@dataclass(frozen=True)
class _Trained:
    model: PreTrainedModel
    score: Score
    steps: int
    mark: str


def _train(
    path: str | Path,
    task: Task,
    encoder: Encoder,
    examples: Sequence[Any],
    eval_examples: Sequence[Any],
    training: Mapping[str, Any],
    work: Path,
    *,
    progress: Progress = SILENT,
) -> _Trained:
    """Train as the best checkpoint has it; on every process the same."""
    with isolated():
        arguments = training_arguments(training, task, work)
        set_seed(arguments.seed)
        model = _model(path, task)
        check_finite(model, str(path))
        dataset = FeatureDataset(task, examples, encoder)
        mark = fingerprint(path, task, arguments, examples, eval_examples, [arguments.world_size])
        with arguments.main_process_first(local=False):
            begun = resume(work, mark, progress)
        try:
            trainer = _trainer(
                model=model,
                args=arguments,
                train_dataset=dataset,
                eval_dataset=eval_examples,
                data_collator=Collator(encoder, input_names(model)),
                task=task,
                encoder=encoder,
                eval_examples=eval_examples,
            )
            with progress.track("fine-tune", steps_of(arguments, len(dataset))) as advance:
                trainer.add_callback(ShowProgress(advance, task.metric))
                with as_os_errors():
                    trainer.train(resume_from_checkpoint=str(begun) if begun else None)
            trainer.accelerator.wait_for_everyone()  # another process may still write into the last checkpoint
            check_finite(model, "the trained model")
            final = _score(trainer, task, encoder, eval_examples)
        except UserError:  # a rerun would only come to the same end
            shutil.rmtree(work, ignore_errors=True)
            raise
        except OSError as error:
            hint = "Make room and run it again: it goes on from its last checkpoint."
            raise Failure(f"Writing failed: {error.strerror or error}.", where=str(work), hint=hint) from error
        return _Trained(model, final, trainer.state.global_step, mark)


def _task(path: str | Path, config: Mapping[str, Any], rows: Rows, columns: Columns, options: TaskOptions) -> Task:
    """The task that was asked for with the labels of the rows, or the one that the model has already."""
    if options.task is None:
        if not any(tasks.task_of_class(name) for name in config.get("architectures") or ()):
            hint = f"Name one with --task: {', '.join(tasks.kinds())}."
            raise UserError("The model has no head that says its task.", where=str(path), hint=hint)
        return folder.read_task(path, config, options)
    name, problem = tasks.kinds()[options.task]
    settings: dict[str, Any] = {}
    if "labels" in tasks.settings_of(name):
        settings["labels"] = find_labels(rows, columns, name, problem)
    if problem:
        settings["problem"] = problem
    return folder.make_task(name, settings, replace(options, task=None), config)


def _trainer(**parts: Any) -> TaskTrainer:
    try:
        trainer = TaskTrainer(**parts)
    except ValueError as error:  # what TrainingArguments lets pass and the trainer does not, such as fp16 on a CPU
        raise UserError(f"A training option cannot be taken: {error}") from None
    trainer.remove_callback(PrinterCallback)
    return trainer


def _model(path: str | Path, task: Task) -> PreTrainedModel:
    names: dict[str, Any] = {"num_labels": len(task.labels) or 2}  # a reader has a start and an end
    if task.labels:
        names["id2label"] = dict(enumerate(task.labels))
        names["label2id"] = {label: index for index, label in enumerate(task.labels)}
    if problem := getattr(task, "problem", None):
        names["problem_type"] = problem
    try:
        config = AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False, **names)
        kind = getattr(transformers, f"AutoModelFor{task.facts.head}")
        model, report = model_class(kind, config).from_pretrained(
            str(path),
            config=config,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
            weights_only=True,
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as error:  # transformers, safetensors and torch.load each raise kinds of their own
        raise cannot_load("The model", path, error) from error
    # A new head, and a pooler that a language model never had, are drawn anew; the encoder itself must be there.
    absent = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lost = sorted(x for x in absent if x.startswith(f"{model.base_model_prefix}.") and "pooler" not in x)
    if lost:
        what = f"The weights lack '{lost[0]}'" + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
        raise UserError(f"{what}, or have them in another shape.", where=str(path), hint="They do not fit config.json.")
    return model


def _score(trainer: TaskTrainer, task: Task, encoder: Encoder, examples: Sequence[Any]) -> Score:
    from .. import engines
    from ..runtime import Predictor

    return score(Predictor(task, encoder, engines.load("torch", trainer.model)), examples)


def _write(done: _Trained, source: str | Path, task: Task, output: Path, overwrite: bool) -> None:
    final = done.score
    with atomic_folder(output, overwrite=overwrite) as scratch:
        with as_os_errors(), quiet_transformers():
            done.model.save_pretrained(scratch)
        folder.read_tokenizer(source).save_pretrained(scratch)
        scored = score_note(final, "torch")
        origin = folder.read_provenance(source, folder.read_config(source))
        name = f"{Path(source).resolve().name}, fine-tuned"
        text = finetuned_card(name, task.name, origin, {**scored, "on": "eval rows, which also chose"})
        (scratch / "README.md").write_text(text, encoding="utf-8")
        files = sorted(path.name for path in scratch.iterdir())
        notes = {
            "task": tasks.to_json(task),
            "score": {name: scored[name] for name in ("metric", "value", "rows", "on")},
            "tersely_version": __version__,
            "run": done.mark,
            "files": files,
        }
        text = json.dumps(notes, ensure_ascii=False, indent=2) + "\n"
        (scratch / folder.NOTES).write_text(text, encoding="utf-8")
        for path in scratch.iterdir():
            path.chmod(path.stat().st_mode | 0o044)  # safetensors writes for the owner alone; servers run as others
