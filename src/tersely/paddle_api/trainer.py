"""`Trainer`: transformers' own, with `compress()` for the model that it holds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import DataLoader, Subset, default_collate

from ..compression.result import CompressionResult
from ..errors import UserError
from ..progress import Progress, shown
from ..training.isolated import isolated, put_states, states
from .arguments import CompressionArguments
from .model_copy import QUESTION, tuple_names
from .run_compression import TrainerParts, compress_model
from .user_loss import OlderLoss, alone, loss_of
from .user_metrics import evaluator

LABELS = ("labels", "start_positions", "end_positions")


class Trainer(transformers.Trainer):  # type: ignore[misc]
    """Trains and evaluates as transformers' does; `compress()` makes the model small and leaves it as it is.

    `args`: `CompressionArguments`, or the tuple of one that `PdArgumentParser` gives. `tokenizer` and
    `processing_class` are the same. `criterion`: `(logits, labels) -> loss`, a function or a module, in the place of
    the model's own loss; both are tuples for question answering, and where `args.label_names` names several labels.
    Datasets whose rows are tuples are bound to the parameters of the model's forward in order, labels last, or to
    `args.tensor_names`. `eval_examples`: the questions (`id`, `context`, `answers`) of an eval_dataset of windows with
    `example_id` and `offset_mapping`, for SQuAD's score over texts. `unlabelled_dataset`: rows like those of the others
    whose labels, if they have any, are not read: in `compress()` they join what learns from a teacher and what needs no
    labels.
    """

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        tokenizer: Any = None,
        criterion: Any = None,
        eval_examples: Any = None,
        unlabelled_dataset: Any = None,
        **more: Any,
    ) -> None:
        if criterion is not None and not callable(criterion):
            raise UserError(f"The criterion must be a function or a module. Got {type(criterion).__name__}.")
        if tokenizer is not None and processing_class is not None and tokenizer is not processing_class:
            raise UserError("The 'tokenizer' and the 'processing_class' are two names of one thing.", hint="Give one.")
        self.criterion, self.eval_examples = criterion, eval_examples
        self.unlabelled_dataset = unlabelled_dataset
        self.written: set[str] = set()
        self.tuple_collator: Any = None
        self.tuple_width = max(_tuple_width(dataset) for dataset in (train_dataset, eval_dataset, unlabelled_dataset))
        if self.tuple_width:
            self.tuple_collator = data_collator or default_collate
            data_collator = self._bound_batch
        super().__init__(
            model=model,
            args=_unwrapped(args),
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer if tokenizer is not None else processing_class,
            **more,
        )
        if criterion is not None:
            self.model_accepts_loss_kwargs = False  # its loss is the mean of a batch
            names: Any = vars(self)["label_names"]
            self.label_names: list[str] = list(names) or ["labels"]

    def compress(
        self,
        custom_evaluate: Any = None,
        *,
        greater_is_better: bool | None = None,
        custom_dynabert_evaluate: Any = None,
        custom_dynabert_calc_loss: Any = None,
        progress: Progress | bool | None = None,
    ) -> CompressionResult:
        """Make the model smaller as `args.strategy` says, score every candidate on the eval_dataset, keep the best.

        `custom_evaluate`: `f(model, dataloader)` or `f(trainer, model, dataloader)`, which gives one number, the larger
        the better unless `greater_is_better` is False. The model that it is given is called with tensors and gives
        logits or a tuple, be it torch's or an engine's. Without it `compute_metrics` scores, and without that the task.
        Results go to `args.output_dir`; those of an earlier call on this trainer are replaced. `progress`: one of your
        own; None shows a bar on a terminal, False nothing.
        """
        arguments = self.args
        if not isinstance(arguments, CompressionArguments):
            what = f"To compress, a Trainer needs CompressionArguments as its 'args'. Got {type(arguments).__name__}."
            raise UserError(what, hint="They are TrainingArguments with the options of compression.")
        if isinstance(self.eval_dataset, Mapping):
            raise UserError("To compress, a Trainer needs one eval_dataset. Got several by name.")
        older = custom_dynabert_evaluate is not None
        for name, value, instead in (
            ("evaluate", custom_dynabert_evaluate, "custom_evaluate"),
            ("calc_loss", custom_dynabert_calc_loss, "the Trainer's criterion"),
        ):
            if value is not None:
                what = f"'custom_dynabert_{name}' is an older name: use {instead}."
                warnings.warn(what, DeprecationWarning, stacklevel=2)
        if older and custom_evaluate is not None:
            raise UserError("'custom_evaluate' and 'custom_dynabert_evaluate' are two names of one thing.")
        function = custom_dynabert_evaluate if older else custom_evaluate
        criterion = self.criterion
        if custom_dynabert_calc_loss is not None:
            criterion = OlderLoss(custom_dynabert_calc_loss, criterion)
        parts = TrainerParts(
            model=self.model,
            tokenizer=self.processing_class,
            train=self.train_dataset,
            evaluation=self.eval_dataset,
            load=self._batches,
            loader=self._loader,
            criterion=criterion,
            evaluate=None if function is None else _outside(evaluator(function, self)),
            compute_metrics=self.compute_metrics,
            preprocess=self.preprocess_logits_for_metrics,
            primary=self._primary(arguments),
            greater_is_better=self._greater(greater_is_better, arguments, function is not None),
            paddle_order=older,
            unlabelled=self.unlabelled_dataset,
            label_names=arguments.label_names,
            tensor_names=arguments.tensor_names,
            eval_examples=self.eval_examples,
        )
        place = str(Path(arguments.output_dir).resolve())
        with isolated():
            done = compress_model(parts, arguments, overwrite=place in self.written, progress=shown(progress))
        self.written.add(place)
        return done

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The criterion's loss where there is one, else the model's own."""
        if self.criterion is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = tuple(inputs[name] for name in self.label_names if name in inputs)
        if not labels:
            what = f"The criterion needs '{self.label_names[0]}', which a batch lacks. It has: {', '.join(inputs)}."
            raise UserError(what, hint="Name other labels with 'label_names' of the arguments.")
        outputs = _named(model(**{name: value for name, value in inputs.items() if name not in self.label_names}))
        logits = tuple(outputs[name] for name in (*QUESTION, "logits") if name in outputs)
        logits = logits or tuple(value for value in outputs.values() if isinstance(value, torch.Tensor))
        loss = loss_of(self.criterion, alone(logits), alone(labels))
        return (loss, {"loss": loss, **outputs}) if return_outputs else loss

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        # A model of the user's own need not take the labels that its criterion and metric ask for.
        self._signature_columns: Any = list(dict.fromkeys([*self._signature_columns, *LABELS, *self.label_names]))

    def _batches(self, part: Any, collate: Any = None) -> Any:
        """Batches of a part of a dataset, in order and to the last row, as `evaluate` would collate them."""
        collate = collate or self._get_collator_with_removed_columns(self.data_collator)
        return DataLoader(part, batch_size=self.args.per_device_eval_batch_size, collate_fn=collate)

    def _loader(self, numbers: Sequence[int]) -> Any:
        """What an evaluator goes through: some rows of the eval_dataset, as the user's own collator makes them."""
        part = Subset(self.eval_dataset, list(numbers))
        return self._batches(part, self.tuple_collator)

    def _bound_batch(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Tuples by name, as a model's forward wants them."""
        batch = self.tuple_collator(rows)
        if isinstance(batch, Mapping):
            return dict(batch)
        labels = self.args.label_names or self.label_names or ["labels"]
        # Rows without labels are shorter than the others; what they have stands in the same places.
        width = max(len(batch), self.tuple_width)
        names = getattr(self.args, "tensor_names", None) or tuple_names(self.model, width, labels)
        return dict(zip(names, batch, strict=False))

    def _primary(self, arguments: CompressionArguments) -> str | None:
        named = arguments.metric_for_best_model if "metric_for_best_model" in arguments.set_fields else arguments.metric
        return None if named is None else str(named).removeprefix("eval_")

    def _greater(self, wanted: bool | None, arguments: CompressionArguments, by_function: bool) -> bool:
        if wanted is None and "greater_is_better" in arguments.set_fields:
            wanted = arguments.greater_is_better
        if wanted is not None:
            if not by_function and self.compute_metrics is None:
                raise UserError("'greater_is_better' has no effect on the task's own metric.", hint="Leave it out.")
            return bool(wanted)
        return by_function or not str(self._primary(arguments) or "").endswith("loss")


def _outside(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same, with accelerate's state as it is now: the user's function may use the trainer's."""
    trainers = states()

    def call(model: Any, loader: Any) -> Any:
        inside = states()
        put_states(trainers)
        try:
            return function(model, loader)
        finally:
            put_states(inside)

    return call


def _unwrapped(args: Any) -> Any:
    """The arguments themselves, of a tuple of one too."""
    if not isinstance(args, (tuple, list)):
        return args
    if len(args) != 1:
        raise UserError(f"The Trainer takes one object as its 'args'. Got {len(args)}.", hint="Unpack what was parsed.")
    return args[0]


def _tuple_width(dataset: Any) -> int:
    """How many tensors a row has that is a tuple; 0 where rows are none."""
    try:
        return len(dataset[0]) if len(dataset) > 0 and isinstance(dataset[0], (tuple, list)) else 0
    except (TypeError, KeyError, NotImplementedError):
        return 0


def _named(outputs: Any) -> dict[str, Any]:
    """What a forward gave, by name."""
    if isinstance(outputs, Mapping):
        return {name: value for name, value in outputs.items() if name != "loss"}
    if isinstance(outputs, torch.Tensor):
        return {"logits": outputs}
    return {f"output_{i}": value for i, value in enumerate(outputs)}
