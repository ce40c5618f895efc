"""Users' evaluators: how many arguments they take, adapters, masks, and which values count as numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from transformers import EvalPrediction

from tersely import UserError
from tersely.engines.torch import TorchEngine
from tersely.paddle_api import OFA
from tersely.paddle_api.datasets import TrainerRow
from tersely.paddle_api.trainer_task import SPANS, Span, best_span
from tersely.paddle_api.user_loss import OlderLoss, UserLoss, loss_of
from tersely.paddle_api.user_metrics import ComputedMetrics, EngineModule, evaluator, filled, number


class Counting(torch.nn.Module):
    """Gives how many real positions each row has, and the sum of its segments."""

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        return torch.stack([attention_mask.sum(-1), token_type_ids.sum(-1)], -1).float()


def engine_module(
    order: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids"), pad_id: int = 0
) -> EngineModule:
    return EngineModule(TorchEngine(Counting()), order, pad_id)


IDS = torch.tensor([[4, 5, 7, 7], [4, 7, 7, 7]])


def test_a_missing_mask_is_rebuilt_from_the_padding_id() -> None:
    assert engine_module(pad_id=7)(IDS).tolist() == [[2, 0], [1, 0]]
    assert engine_module(pad_id=7)(input_ids=IDS, attention_mask=None).tolist() == [[2, 0], [1, 0]]


def test_a_mask_that_is_given_counts_in_all_its_forms() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    added = (1.0 - mask[:, None, None, :]) * -1e4
    for form in (mask, mask.bool(), [mask, torch.ones(2, 2)], added):
        assert engine_module(pad_id=7)(input_ids=IDS, attention_mask=form).tolist() == [[3, 0], [4, 0]]
    assert engine_module(pad_id=7)(input_ids=IDS, attention_mask=[None, torch.ones(2, 2)]).tolist() == [[2, 0], [1, 0]]


def test_positions_bind_in_the_order_of_forward_or_of_paddle() -> None:
    second = torch.ones_like(IDS)
    assert engine_module(pad_id=0)(IDS, None, second).tolist() == [[4, 4], [4, 4]]
    paddle = engine_module(("input_ids", "token_type_ids", "position_ids", "attention_mask"), 0)
    assert paddle(IDS, second).tolist() == [[4, 4], [4, 4]]


def test_labels_and_switches_are_passed_over_and_habits_of_evaluators_work() -> None:
    model = engine_module()
    model.eval()
    assert next(model.parameters()).device == model.device == torch.device("cpu")
    assert not isinstance(model, OFA)
    assert model(input_ids=IDS, labels=torch.ones(2), return_dict=True).shape == (2, 2)
    with pytest.raises(UserError, match="takes 3 inputs"):
        model(IDS, IDS, IDS, IDS)


class Holder:
    def two(self, model: Any, loader: Any) -> Any:
        return ("two", model, loader)

    def three(self, trainer: Any, model: Any, loader: Any) -> Any:
        return (trainer, model, loader)

    def __call__(self, model: Any, loader: Any) -> Any:
        return ("called", model, loader)


def two(model: Any, loader: Any, threshold: float = 0.5) -> Any:
    return ("two", model, loader)


def three(self: Any, model: Any, data_loader: Any) -> Any:
    return (self, model, data_loader)


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (two, "two"), (three, "trainer"), (Holder().two, "two"), (Holder().three, "trainer"), (Holder(), "called"),
        (lambda *everything: everything, "trainer"), (partial(three, "bound"), "bound"),
    ],
)  # fmt: skip
def test_arity_tells_whether_the_trainer_is_wanted(function: Any, first: str) -> None:
    assert evaluator(function, "trainer")("model", "loader") == (first, "model", "loader")


@pytest.mark.parametrize("function", [lambda: 0, lambda model: 0, lambda a, b, c, d: 0, 0.5])
def test_other_arities_are_refused(function: Any) -> None:
    with pytest.raises(UserError, match="'custom_evaluate' must"):
        evaluator(function, None)


def test_numbers_of_all_kinds_are_numbers_and_nothing_else_is() -> None:
    assert [number(value, "f") for value in (1, 0.5, np.float32(0.25), torch.tensor(2.0))] == [1, 0.5, 0.25, 2]
    for wrong in (None, {"f1": 1}, (1, 2), float("nan")):
        with pytest.raises(UserError, match="'f' "):
            number(wrong, "f")


def test_compute_metrics_gets_what_transformers_trainer_gives_it() -> None:
    seen: list[EvalPrediction] = []

    def compute(prediction: EvalPrediction) -> dict[str, Any]:
        seen.append(prediction)
        return {"f1": 0.5, "note": "text"}

    rows = [TrainerRow(0, {}, {"labels": np.array([1, -100])}), TrainerRow(1, {}, {"labels": np.array([2, 0, 1])})]
    logits = [np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)]
    judge = ComputedMetrics("f1", compute, ("labels",), several=False)
    assert judge(None, rows, logits) == {"f1": 0.5}
    assert seen[0].label_ids.tolist() == [[1, -100, -100], [2, 0, 1]]
    assert seen[0].predictions.shape == (2, 3, 4)
    assert (seen[0].predictions[0, 2] == -100).all()
    changed = ComputedMetrics(
        "f1", compute, ("labels",), several=False, preprocess=lambda logits, labels: logits.argmax(-1)
    )
    changed(None, rows, logits)
    assert seen[1].predictions.shape == (2, 3)
    with pytest.raises(UserError, match="gives no 'accuracy' this time"):
        ComputedMetrics("accuracy", compute, ("labels",), several=False)(None, rows, logits)


def test_two_outputs_come_as_a_tuple() -> None:
    seen = []
    rows = [TrainerRow(0, {}, {"s": np.array(1), "e": np.array(2)})]
    judge = ComputedMetrics("m", lambda p: seen.append(p) or {"m": 1.0}, ("s", "e"), several=True)
    judge(None, rows, [np.arange(6, dtype=np.float32).reshape(3, 2)])
    assert [array.tolist() for array in seen[0].predictions] == [[[0, 2, 4]], [[1, 3, 5]]]
    assert [array.tolist() for array in seen[0].label_ids] == [[1], [2]]


def test_filling_up_keeps_what_is_there() -> None:
    assert filled([np.array([1.0]), np.array([2.0, 3.0])]).tolist() == [[1, -100], [2, 3]]


def test_criterion_gets_tuples_where_there_are_several_and_zeros_at_padding() -> None:
    seen = []
    criterion = UserLoss(
        lambda logits, labels: seen.append((logits, labels)) or torch.ones(2), ("a", "b"), zero_padding=True
    )
    batch = {"a": torch.tensor([[1, -100]]), "b": torch.tensor([[1, 1]]), "attention_mask": torch.tensor([[1, 0]])}
    assert criterion.of_batch((IDS, IDS), batch).item() == 1
    ((logits, labels),) = seen
    assert len(logits) == 2
    assert [array.tolist() for array in labels] == [[[1, 0]], [[1, 0]]]
    single = UserLoss(lambda logits, labels: logits.sum() + labels.sum(), ("a",))
    assert single.of_batch((torch.ones(1),), batch).item() == -98
    with pytest.raises(UserError, match="must give a tensor"):
        UserLoss(lambda logits, labels: 0.5, ("a",)).of_batch((IDS,), batch)


def test_the_older_loss_is_called_as_it_was() -> None:
    def calc(loss_fct: Any, model: Any, batch: Any, head_mask: Any) -> Any:
        logits = model(batch["input_ids"], batch["token_type_ids"], attention_mask=[None, head_mask])
        return loss_fct(logits, batch["labels"])

    batch = {"input_ids": IDS, "token_type_ids": IDS, "labels": torch.tensor([0, 1])}
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    found = OlderLoss(calc, torch.nn.CrossEntropyLoss()).of_batch((logits,), batch)
    assert found.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, batch["labels"]).item())


def test_spans_score_as_sets_of_positions() -> None:
    draw = np.random.default_rng(0)
    golds = [Span(*sorted(int(i) for i in draw.integers(0, 8, 2))) for _ in range(200)]
    answers = [Span(*sorted(int(i) for i in draw.integers(0, 8, 2))) for _ in range(200)]
    wanted = []
    for gold, answer in zip(golds, answers, strict=True):
        gold_places, answer_places = set(range(gold.start, gold.end + 1)), set(range(answer.start, answer.end + 1))
        wanted.append(2 * len(gold_places & answer_places) / (len(gold_places) + len(answer_places)))
    assert SPANS["f1"].score(golds, answers) == pytest.approx(np.mean(wanted))
    assert SPANS["em"].score(golds, answers) == pytest.approx(
        np.mean([g == a for g, a in zip(golds, answers, strict=True)])
    )


def test_the_best_span_is_that_of_a_search_over_all() -> None:
    draw = np.random.default_rng(1)
    for _ in range(20):
        logits = draw.normal(size=(9, 2))
        every = [(logits[s, 0] + logits[e, 1], s, e) for s in range(9) for e in range(s, min(9, s + 3))]
        assert best_span(logits, 3) == max(every)[1:]


def test_cross_entropy_of_torch_takes_what_paddles_takes() -> None:
    torch.manual_seed(0)
    tags, labels = torch.randn(2, 5, 3), torch.tensor([[0, 1, 2, -100, 1], [1, 1, 0, 0, -100]])
    wanted = torch.nn.functional.cross_entropy(tags.transpose(1, 2), labels)
    assert loss_of(torch.nn.CrossEntropyLoss(), tags, labels).item() == pytest.approx(wanted.item())
    ends, places = (torch.randn(2, 5), torch.randn(2, 5)), (torch.tensor([1, 2]), torch.tensor([3, 4]))
    pairs = zip(ends, places, strict=True)
    wanted = sum(torch.nn.functional.cross_entropy(logits, to) for logits, to in pairs) / 2
    assert loss_of(torch.nn.CrossEntropyLoss(), ends, places).item() == pytest.approx(wanted.item())
