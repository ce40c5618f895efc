"""The promises of the library, one section each: a test here fails when a promise is broken.

What is shown elsewhere: which mistakes are refused, and in which words (`cli/test_compress_bad_input.py`,
`test_pruning_bad_input.py`); scores against independent references (`paddle_api/test_compress_live.py`); folders that
appear whole or not at all (`test_compress_killed.py`, `test_pruned_killed.py`, `test_output.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import DataCollatorWithPadding
from transformers.models.bert import modeling_bert

import tersely
from compressible import Place
from folders import digests
from learnable import single, split, tiny, tsv
from live import arguments, classified, folder, load, trainer
from tersely import runtime
from tersely.errors import UserError
from tersely.options import compress as options
from tersely.options import effects as option_effects
from tersely.options.compress import OPTIONS, CompressOptions
from tersely.options.effects import check, check_training, check_unlabelled
from tersely.strategy import QUANTIZERS, STEPS, Plan, parse

EVERYWHERE = {
    "strategy", "max_drop", "max_minutes", "prefer", "origin_metric", "origin_tolerance", "engines", "input_dtype",
    "seed",
    "input_infer_model_path",
}  # fmt: skip
"""Options that mean something to every strategy; with which others they do not go is tested with the options."""
OTHER: dict[str, Any] = {
    "width_mult_list": "1/2", "depth_mult_list": "1/2", "distill_hidden": 0.3, "distill_logits": 0.3,
    "distill_temperature": 2, "label_loss": 0.3, "importance": "teacher", "importance_rows": 9,
    "teacher_model_name_or_path": "teacher", "resume_from_checkpoint": False, "max_vocab_size": 99, "algo_list": "emd",
    "calibration_rows": 9, "batch_size_list": 9, "batch_num_list": 9, "weight_quantize_type": "abs_max",
    "activation_quantize_type": "moving_average_abs_max", "use_pact": False, "round_type": "adaround",
    "bias_correction": True, "smooth": 0.5, "quantize_attention": "on", "sensitivity": True, "skip_layers": "*x*",
    "cpu_classes": "vnni", "target_speedup": 3, "target_batch": 9, "target_length": 9, "target_threads": 2,
    "latency_table": "table.json",
}  # fmt: skip
"""A value of each option that is not the default."""
TRAINING = {"max_steps": 2, "save_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 1e-3}


EFFECTIVE = {name: {*option.steps} for name, option in OPTIONS.items() if option.steps}
"""The steps that an option has an effect on, where that is not all of them."""


def strategies() -> list[Plan]:
    """All that there are: any of the pruners, one quantizer at most, tables or not."""
    found = [()]
    for step in STEPS:
        found += [(*steps, step) for steps in found if step not in QUANTIZERS or not {*QUANTIZERS} & {*steps}]
    return [Plan(steps) for steps in found if steps]


@pytest.fixture(scope="module", autouse=True)
def reads() -> Iterator[set[str]]:
    """Names of options that anyone but the checks reads, through the options' own methods too."""
    seen: set[str] = set()
    passing = {options.__name__, option_effects.__name__, "dataclasses", __name__}

    def read(self: CompressOptions, name: str) -> Any:
        frame: Any = sys._getframe(1)
        while frame.f_globals["__name__"] == options.__name__ and frame.f_code.co_name != "__post_init__":
            frame = frame.f_back
        if frame.f_globals["__name__"] not in passing and frame.f_globals["__name__"].startswith("tersely"):
            seen.add(name)
        return object.__getattribute__(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompressOptions, "__getattribute__", read)
        yield seen


def world() -> dict[str, Any]:
    """Everything global that a library might change and a user would miss."""
    gc.collect()
    methods = {
        f"{kind.__name__}.{name}": member
        for kind in (*_classes(modeling_bert), transformers.Trainer, transformers.PreTrainedModel, torch.nn.Module,
                     torch.nn.Linear, torch.nn.LayerNorm, torch.Tensor)
        for name, member in vars(kind).items() if callable(member)
    }  # fmt: skip
    return {
        "dtype": torch.get_default_dtype(), "threads": torch.get_num_threads(), "grad": torch.is_grad_enabled(),
        "torch": torch.get_rng_state().tolist(), "numpy": repr(np.random.get_state()), "python": random.getstate(),
        "deterministic": torch.are_deterministic_algorithms_enabled(), "anomaly": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"), "inference": torch.is_inference_mode_enabled(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "verbosity": transformers.logging.get_verbosity(), "bars": transformers.logging.is_progress_bar_enabled(),
        "loggers": {name: logging.getLogger(name).level for name in ("transformers", "accelerate", "torch", "onnx")},
        "root": (logging.root.level, list(logging.root.handlers)), "warnings": list(warnings.filters),
        "showwarning": warnings.showwarning, "environment": dict(os.environ), "directory": Path.cwd(),
        "methods": methods, "hooks": len(torch.nn.modules.module._global_forward_hooks),
        "excepthook": sys.excepthook, "printed": np.get_printoptions(), "errors": np.geterr(),
        "accelerate": _accelerate(),
    }  # fmt: skip


def _classes(module: Any) -> list[type]:
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


def _accelerate() -> dict[str, Any]:
    from accelerate.state import AcceleratorState, GradientState, PartialState

    return {kind.__name__: dict(kind._shared_state) for kind in (PartialState, AcceleratorState, GradientState)}


def state_of(model: Any) -> dict[str, Any]:
    """All of a live model, with the very tensors that it holds."""
    parts = list(model.modules())
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {
        "names": [name for name, _ in tensors], "objects": [id(tensor) for _, tensor in tensors],
        "values": [tensor.detach().clone().tolist() for _, tensor in tensors],
        "grads": [(tensor.requires_grad, tensor.grad is None) for _, tensor in tensors],
        "training": [part.training for part in parts], "classes": [type(part) for part in parts],
        "own": [sorted(vars(part)) for part in parts], "config": model.config.to_dict(),
        "hooks": [
            [list(getattr(part, name)) for name in
             ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")]
            for part in parts
        ],
    }  # fmt: skip


@dataclasses.dataclass
class Ran:
    """A run, and how things stood before and after."""

    result: Any
    steps: set[str]
    reads: set[str]
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def content(self) -> dict[str, Any]:
        return json.loads((self.result.output_dir / "result.json").read_text())


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, reads: set[str], timings: None) -> Ran:
    """A live model that was trained a little, pruned, trained for INT8 and calibrated."""
    place = tmp_path_factory.mktemp("live")
    model, tokenizer = load(folder(place / "model", layers=1))
    model.bert.embeddings.requires_grad_(False)
    model.register_forward_hook(lambda *_: None)
    rows = classified(tokenizer, 40)
    strategies = ["dynabert+qat+embeddings", "ptq"]
    args = arguments(place / "out", strategies, **TRAINING, calibration_rows=8, importance_rows=8)
    live_trainer = trainer(
        model, args, tokenizer=tokenizer, data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=rows[:20], eval_dataset=rows[20:],
    )  # fmt: skip
    model(input_ids=torch.tensor([rows[0]["input_ids"]])).logits.sum().backward()  # gradients are the user's too
    before = {"world": world(), "model": state_of(model), "files": digests(place / "model"), "rows": repr(rows)}
    reads.clear()
    result = live_trainer.compress()
    after = {"world": world(), "model": state_of(model), "files": digests(place / "model"), "rows": repr(rows)}
    return Ran(result, {"dynabert", "qat", "embeddings", "ptq"}, set(reads), before, after)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, reads: set[str], timings: None) -> Ran:
    """A model folder and its files, the vocabulary cut and trained for INT8; INT8 at run time."""
    place = tmp_path_factory.mktemp("files")
    train, dev = split(place / "data", single, tsv, "tsv")
    tiny(place / "data" / "model", hidden=64, id2label={0: "bad", 1: "good"})
    before = {"world": world(), "files": digests(place / "data")}
    reads.clear()
    result = tersely.compress(
        place / "data" / "model", output_dir=place / "out", train_file=train, eval_file=dev,
        strategy=["prune_embeddings+qat", "dynamic"], engines="onnxruntime", algo_list="min_max", **TRAINING,
    )  # fmt: skip
    after = {"world": world(), "files": digests(place / "data")}
    return Ran(result, {"prune_embeddings", "qat", "dynamic"}, set(reads), before, after)


@pytest.fixture(params=[pytest.param("live", marks=pytest.mark.slow), pytest.param("files", marks=pytest.mark.slow)])
def ran(request: pytest.FixtureRequest) -> Ran:
    return request.getfixturevalue(request.param)


class TestNoOptionIsASilentNoOp:
    def test_of_every_option_is_known_what_it_has_an_effect_on(self) -> None:
        assert {*EFFECTIVE, *EVERYWHERE} == {field.name for field in dataclasses.fields(CompressOptions)}
        assert not {*EFFECTIVE} & EVERYWHERE
        assert {*OTHER, "moving_rate"} == {*EFFECTIVE}

    @pytest.mark.parametrize("plan", strategies(), ids=lambda plan: plan.name)
    def test_what_has_no_effect_on_a_strategy_is_refused_by_name(self, plan: Plan) -> None:
        for name, value in OTHER.items():
            needed = {"target_speedup": 2} if "prune" in plan.steps else {}
            options = CompressOptions(strategy=plan.name, **{**needed, name: value})
            shaped = {"width_mult_list", "depth_mult_list", "importance", "importance_rows"}
            if EFFECTIVE[name] & {*plan.steps} and not ("prune" in plan.steps and name in shaped):
                check(options, (plan,), {name})
            else:
                with pytest.raises(UserError, match=f"'{name}' option .*has no effect with the strategy"):
                    check(options, (plan,), {name})
        if {"dynabert", "qat"} & {*plan.steps}:
            check_training({"learning_rate": 1e-4}, (plan,))
        else:
            with pytest.raises(UserError, match="'learning_rate' option has no effect with the strategy"):
                check_training({"learning_rate": 1e-4}, (plan,))

    @pytest.mark.parametrize("plan", strategies(), ids=lambda plan: plan.name)
    def test_rows_without_labels_that_nothing_looks_at_are_refused(self, plan: Plan) -> None:
        """Where there are training rows, those calibrate for `ptq`."""
        needed = {"target_speedup": 2} if "prune" in plan.steps else {}
        options, looks = CompressOptions(strategy=plan.name, **needed), {"prune_embeddings", "prune", "dynabert", "qat"}
        for train, takers in ((True, looks), (False, looks | {"ptq"})):
            if takers & {*plan.steps}:
                check_unlabelled(options, (plan,), train=train)
            else:
                with pytest.raises(UserError, match="'unlabelled_file' option has no effect with the strategy"):
                    check_unlabelled(options, (plan,), train=train)

    def test_what_is_taken_is_read_by_more_than_the_checks(self, ran: Ran) -> None:
        effective = {name for name, steps in EFFECTIVE.items() if steps & ran.steps}
        assert effective - ran.reads == set()


class TestEverythingIsCheckedFirst:
    @pytest.fixture(autouse=True)
    def _no_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Fails the test if a run comes to its training: none of these may."""

        def tripped(*_: Any, **__: Any) -> None:
            raise AssertionError("a training began")

        monkeypatch.setattr(transformers.Trainer, "train", tripped)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"strategy": "dynabert+pqt"}, "Did you mean 'ptq'"),
            ({"strategy": "dynabert", "width_mult_list": "5/4"}, "must hold fractions"),
            ({"algo_list": "msee"}, "Did you mean 'mse'"),
            ({"train_file": "torn"}, r"torn\.tsv:2: The row has 1 fields, 2 expected"),
            ({"eval_file": "other"}, r"other\.tsv:2: The label 'unheard' is not one of the model's"),
            ({"strategy": "qat", "per_device_train_batch_size": 0}, "batch_size.* must be at least 1"),
        ],
    )
    def test_mistakes_come_before_any_work(self, options: dict[str, Any], said: str, tmp_path: Path) -> None:
        train, dev = split(tmp_path / "data", single, tsv, "tsv")
        place = tiny(tmp_path / "data" / "model", hidden=64, id2label={0: "bad", 1: "good"})
        (tmp_path / "data" / "torn").with_suffix(".tsv").write_text("text\tlabel\nthe river\n")
        tsv(tmp_path / "data" / "other.tsv", [{"text": "the river", "label": "unheard"}])
        keywords: dict[str, Any] = {"train_file": train, "eval_file": dev, "strategy": "dynabert+ptq", **options}
        keywords |= {n: tmp_path / "data" / f"{v}.tsv" for n, v in options.items() if n.endswith("_file")}
        before = digests(tmp_path)
        with pytest.raises(UserError, match=said):
            tersely.compress(place, output_dir=tmp_path / "out", **keywords)
        assert digests(tmp_path) == before
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("strategy", ["dynabert", "qat"])
    def test_a_full_disk_comes_before_any_work(
        self, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        train, dev = split(tmp_path, single, tsv, "tsv")
        place = tiny(tmp_path / "model", hidden=64, id2label={0: "bad", 1: "good"})
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
        with pytest.raises(UserError, match="The disk is too full"):
            tersely.compress(place, output_dir=tmp_path / "out", train_file=train, eval_file=dev, strategy=strategy)
        assert not (tmp_path / "out").exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("strategy", ["dynabert", "qat"])
    def test_what_cannot_be_exported_comes_before_any_step(self, strategy: str, tmp_path: Path) -> None:
        model, tokenizer = load(folder(tmp_path / "model", layers=1))
        rows = classified(tokenizer, 24)

        class Moody(type(model)):
            """Does other things with other texts, which no graph can."""

            def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:
                output = super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
                if float(output.logits.sum()) > 0:
                    output.logits = -output.logits
                return output

        model.__class__ = Moody
        args = arguments(tmp_path / "out", strategy, **TRAINING)
        collate = DataCollatorWithPadding(tokenizer)
        live_trainer = trainer(
            model, args, tokenizer=tokenizer, data_collator=collate, train_dataset=rows[:12], eval_dataset=rows[12:],
            criterion=torch.nn.CrossEntropyLoss(),
        )  # fmt: skip
        with pytest.raises(UserError, match="cannot be turned into an ONNX graph"):
            live_trainer.compress(lambda model, loader: 0.5)
        assert list((tmp_path / "out").glob("*")) == []


class TestNothingOfTheUsersIsChanged:
    @pytest.mark.slow
    def test_the_live_model_is_as_it_was(self, live: Ran) -> None:
        before, after = live.before["model"], live.after["model"]
        assert [part for part in before if before[part] != after[part]] == []
        assert any(before["training"])
        assert not all(needed for needed, _ in before["grads"])

    def test_files_are_as_they_were(self, ran: Ran) -> None:
        assert ran.before["files"] == ran.after["files"] != {}

    @pytest.mark.slow
    def test_rows_are_as_they_were(self, live: Ran) -> None:
        assert live.before["rows"] == live.after["rows"]

    def test_the_world_is_as_it_was(self, ran: Ran) -> None:
        before, after = ran.before["world"], ran.after["world"]
        assert {part: (before[part], after[part]) for part in before if before[part] != after[part]} == {}


class TestEveryOutputIsScored:
    def test_every_candidate_is_told_with_all_its_numbers(self, ran: Ran) -> None:
        by_name = {candidate["name"]: candidate for candidate in ran.content["candidates"]}
        assert {path.name for path in (ran.result.output_dir / "candidates").iterdir()} == {*by_name} != set()
        for name, candidate in by_name.items():
            assert None not in [candidate[number] for number in ("score", "drop", "same_answer", "size")], name
            artifact = runtime.load(ran.result.output_dir / candidate["path"])
            assert artifact.predict(["the dark river"]), name

    def test_what_could_not_be_scored_is_marked(self, place: Any, tmp_path: Path) -> None:
        here: Place = place()
        result = tersely.compress(
            output_dir=tmp_path / "out", input_infer_model_path=here.graph, strategy="dynamic", engines="onnxruntime"
        )
        (candidate,) = json.loads((tmp_path / "out" / "result.json").read_text())["candidates"]
        assert candidate["score"] is candidate["drop"] is None
        assert "*not scored*" in (result.path / "README.md").read_text()


def test_the_strategies_tried_here_are_all_that_are_taken() -> None:
    """Every set of steps is tried as a strategy; the others are refused."""
    taken = set()
    for steps in (steps for size in range(len(STEPS) + 1) for steps in combinations(STEPS, size)):
        with contextlib.suppress(UserError):
            taken.add(parse("+".join(steps)).name)
    assert {plan.name for plan in strategies()} == taken != set()
