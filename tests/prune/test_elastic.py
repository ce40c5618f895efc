"""Elastic forwards: what the carved models give, without copies, in training, mixed precision, Trainer and DDP."""

from __future__ import annotations

import warnings
from fractions import Fraction

import pytest
import torch
from transformers import Trainer, TrainingArguments

from models import FAMILIES as NAMES
from models import HEADS
from prunable_batches import batch_for, logits, off
from tersely.errors import UserError
from tersely.models.carve import Shape, shape_for, shape_of
from tersely.models.families import find
from tersely.models.torch_folder import load_module
from tersely.prune import Elastic

WIDTHS = {"wide": ("5/6", "1"), "half": ("1/2", "1"), "narrow": ("1/6", "1"), "short": ("2/3", "2/3")}


def elastic(model) -> Elastic:
    full = shape_of(model, find(model))
    return Elastic(model, {n: shape_for(full, Fraction(w), Fraction(d)) for n, (w, d) in WIDTHS.items()})


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_gives_what_its_carved_model_gives(prunable, name):
    model = load_module(prunable(name))
    batch, network = batch_for(model), elastic(model)
    for shape in WIDTHS:
        with torch.no_grad():
            output = network(shape, **batch, output_hidden_states=True)
            expected = network.carved(shape)(**batch, output_hidden_states=True)
        assert off(output.logits, expected.logits) <= 1e-5
        assert len(output.hidden_states) == len(expected.hidden_states) == len(network.shapes[shape].layers) + 1
        for got, wanted in zip(output.hidden_states, expected.hidden_states, strict=True):
            assert off(got, wanted) <= 1e-5
    assert off(logits(network, batch), logits(model, batch)) <= 1e-6


@pytest.mark.parametrize("head", HEADS[1:])
def test_other_heads_give_what_their_carved_models_give(prunable, head):
    model = load_module(prunable("electra", head))
    batch, network = batch_for(model), elastic(model)
    for shape in WIDTHS:
        with torch.no_grad():
            output, expected = network(shape, **batch).to_tuple(), network.carved(shape)(**batch).to_tuple()
        assert max(off(actual, wanted) for actual, wanted in zip(output, expected, strict=True)) <= 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_states_are_the_hidden_states(prunable, name):
    model = load_module(prunable(name))
    batch, network = batch_for(model), elastic(model)
    for shape in ("full", "half", "short"):
        with torch.no_grad():
            output, states = network(shape, states=True, **batch)
            expected = network(shape, **batch, output_hidden_states=True)
        assert torch.equal(output.logits, expected.logits)
        assert len(states) == len(expected.hidden_states)
        last = -1 if name == "modernbert" else None  # transformers gives its last one behind the final norm
        assert all(torch.equal(*pair) for pair in zip(states[:last], expected.hidden_states[:last], strict=True))
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_all_tensors_are_the_full_models(prunable):
    model = load_module(prunable())
    network = elastic(model)
    assert {id(p) for p in network.parameters()} == {id(p) for p in model.parameters()}
    assert set(network.state_dict()) == {f"model.{name}" for name in model.state_dict()}
    assert list(network.children()) == [model]
    assert network.config is model.config


def test_a_step_on_the_weights_is_seen_by_every_shape(prunable):
    model = load_module(prunable())
    network, batch = elastic(model), batch_for(model)
    before = logits(network, batch, shape="half")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    after = logits(network, batch, shape="half")
    assert off(before, after) > 1e-3
    assert off(after, logits(network.carved("half"), batch)) <= 1e-5


def test_gradients_of_several_shapes_add_up_in_the_full_parameters(prunable):
    model = load_module(prunable()).double()
    network, batch = elastic(model), batch_for(model)
    apart = {}
    for shape in ("full", "half", "short"):
        network.zero_grad()
        network(shape, **batch).logits.pow(2).sum().backward()
        apart[shape] = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    network.zero_grad()
    sum(network(shape, **batch).logits.pow(2).sum() for shape in apart).backward()
    for name, parameter in model.named_parameters():
        expected = sum(gradients[name] for gradients in apart.values() if name in gradients)
        torch.testing.assert_close(parameter.grad, expected)
    query = apart["half"]["bert.encoder.layer.0.attention.self.query.weight"]
    assert query[:24].any()
    assert not query[24:].any()
    assert "bert.encoder.layer.1.output.dense.weight" not in apart["short"]


def test_training_mode_reaches_every_shape(prunable):
    model = load_module(prunable())
    network, batch = elastic(model), batch_for(model)
    for switch in (network, model):  # whichever of the two is switched
        switch.train()
        assert off(logits(network, batch, shape="half"), logits(network, batch, shape="half")) > 1e-4
        switch.eval()
        assert off(logits(network, batch, shape="half"), logits(network, batch, shape="half")) <= 1e-6


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_mixed_precision_runs_and_learns(prunable, name):
    model = load_module(prunable(name)).train()
    network, batch = elastic(model), batch_for(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = network("half", **batch, labels=torch.tensor([0, 1, 2])).loss
    loss.backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        network.eval()
        output, expected = network("half", **batch).logits, network.carved("half")(**batch).logits
    assert torch.equal(output, expected)


def test_runs_under_a_trainer(prunable, tmp_path):
    model = load_module(prunable())
    network = elastic(model)
    rows = [
        {name: value[0] for name, value in batch_for(model, (8,), seed=i).items()} | {"labels": i % 3} for i in range(6)
    ]

    class Widths(Trainer):
        def compute_loss(self, model, inputs, **_):
            return sum(model(shape, **inputs).loss for shape in WIDTHS)

    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    arguments = TrainingArguments(
        tmp_path, max_steps=2, per_device_train_batch_size=3, remove_unused_columns=False, report_to=[], use_cpu=True,
        gradient_accumulation_steps=2, disable_tqdm=True, save_strategy="no", learning_rate=1e-2, bf16=True,
    )  # fmt: skip
    Widths(model=network, args=arguments, train_dataset=rows).train()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert "bert.encoder.layer.1.attention.self.query.weight" in moved
    # accelerate leaves its bf16 wrapper on the module that was trained; the full model has none.
    again, batch = elastic(model.eval()), batch_for(model)
    assert off(logits(again, batch, shape="narrow"), logits(again.carved("narrow"), batch)) <= 1e-5


def test_model_that_a_trainer_left_in_mixed_precision_is_carved_without_it(prunable, tmp_path):
    model = load_module(prunable())
    rows = [{name: value[0] for name, value in batch_for(model, (8,)).items()} | {"labels": 1}] * 2
    arguments = TrainingArguments(
        tmp_path, max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", bf16=True
    )
    Trainer(model=model, args=arguments, train_dataset=rows).train()
    wrapped, batch = model.eval().forward, batch_for(model)
    plain = load_module(prunable())
    plain.load_state_dict(model.state_dict())
    network, expected = elastic(model), elastic(plain)
    for got in (logits(network, batch, shape="half"), logits(network.carved("half"), batch)):
        assert off(got, logits(expected, batch, shape="half")) <= 1e-5
    assert off(logits(network.carved("full"), batch), logits(plain, batch)) <= 1e-5
    assert model.forward == wrapped


def test_runs_under_ddp(prunable, tmp_path):
    model = load_module(prunable())
    network, batch = elastic(model), batch_for(model)
    network("short", **batch).logits.pow(2).sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert expected
    network.zero_grad()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
        wrapped("short", **batch).logits.pow(2).sum().backward()
        for name, parameter in model.named_parameters():
            if name in expected:
                torch.testing.assert_close(parameter.grad, expected[name])
    finally:
        torch.distributed.destroy_process_group()


def test_unknown_and_reserved_shapes_are_refused(prunable):
    model = load_module(prunable())
    with pytest.raises(UserError, match=r"There is no shape 'hlaf'\. Did you mean 'half'"):
        elastic(model)("hlaf", **batch_for(model))
    with pytest.raises(UserError, match="There is no shape 'thin'"):
        elastic(model).carved("thin")
    with pytest.raises(UserError, match="A shape cannot be called 'full'"):
        Elastic(model, {"full": Shape((1,), (8,), (0,))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its name since transformers 5.23 is another
        model.gradient_checkpointing_enable()
    with pytest.raises(UserError, match="Gradient checkpointing does not work"):
        elastic(model)


def test_looking_at_a_model_warns_of_nothing(prunable, recwarn):
    model = load_module(prunable())
    recwarn.clear()
    elastic(model)("half", **batch_for(model))
    assert not [
        str(warning.message) for warning in recwarn if issubclass(warning.category, (FutureWarning, DeprecationWarning))
    ]
