"""`check_family`: proves that a description of a model family is right, on a model with weights drawn anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from torch import nn

from ..engines.torch import as_tuple, input_names, output_names
from ..errors import UserError
from ..graphs.export import sample_batches
from ..models.carve import Places, Shape, carve, locate, shape_for, slices, twin
from ..models.carve.model import carved_class, plain_class
from ..models.carve.places import HEADS, NEURONS
from ..models.families import FAMILIES, Family
from ..models.torch_folder import quiet_transformers
from ..prune import Elastic, Importance, reorder, save_carved
from ..tasks import heads

TOLERANCE = 1e-5
"""How far logits may be off, as a share of the largest. In FP64: all that is left is what a model itself rounds."""


def check_family(family: Family, model: Any, batch: Mapping[str, torch.Tensor] | None = None) -> None:
    """Try a description on a model or on one made from a config; AssertionError says what is wrong, and where.

    Other orders of heads and neurons must give the same logits; a head or neuron multiplied by zero, the same as one
    that was carved away; every width and depth, the same elastic as carved and as saved and loaded again; gradients
    must reach all that is kept and nothing else. `batch`: inputs, where they are not the usual ones. The model given
    is untouched. Seconds for a small model: make `hidden_size` and the like small.

    >>> from tersely.models.families import find
    >>> settings = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "num_hidden_layers": 2}
    >>> check_family(find("bert"), transformers.BertConfig(vocab_size=50, **settings))
    """
    trial = FamilyTrial(family, model, batch)
    _check_counts(trial)
    _check_dependence(trial)
    _check_orders(trial)
    _check_removal(trial)
    for name, shape in _shapes(trial).items():
        _check_shape(trial, name, shape)


def _check_counts(trial: FamilyTrial) -> None:
    """The attributes that a smaller layer gets must hold now what the description says that they hold."""
    family, places = trial.family, trial.places
    for block, name in enumerate(places.blocks):
        heads, size = places.full.heads[block], trial.attribute(name, family.head_size)
        for paths, expected in ((family.head_count, heads), (family.head_width, heads * size)):
            for path in paths:
                if trial.attribute(name, path) != expected:
                    held = trial.attribute(name, path)
                    raise trial.broken(f"'{name}.{path}' holds {held}; {expected} is expected")


def _check_dependence(trial: FamilyTrial) -> None:
    for unit in (HEADS, NEURONS):
        for block, output in enumerate(trial.places.outputs(unit)):
            with trial.zeroed(unit, block, trial.places.count(unit, block)):
                without = trial.run(trial.model, f"the model without the input of '{output}'")
            if not (without - trial.logits).abs().max().item() > 10 * TOLERANCE:
                raise trial.broken(f"the logits do not depend on the input of '{output}', where the {unit} should be")


def _check_orders(trial: FamilyTrial) -> None:
    draw = np.random.default_rng(0)
    for unit in (HEADS, NEURONS):
        scores = _scores(trial.places, draw.random, only=unit)
        turned = trial.run(reorder(trial.model, scores, trial.family), f"a model with another order of {unit}")
        trial.expect_same(turned, trial.logits, f"another order of {unit} must not change what the model gives")


def _check_removal(trial: FamilyTrial) -> None:
    """Turn the first head (neuron) of every layer into its last; carve that away in one layer."""
    places, full = trial.places, trial.places.full
    for unit in (HEADS, NEURONS):
        if max(full.heads if unit == HEADS else full.ffn) == 1:
            continue
        turned = reorder(trial.model, _scores(places, lambda count: np.arange(count) > 0, only=unit), trial.family)
        everywhere = trial.family.layers_share_weights or (unit == HEADS and trial.family.heads_are_shared)
        for block in {0} if everywhere else {0, len(places.blocks) - 1}:
            carved = carve(turned, trial.family, _one_less(full, unit, None if everywhere else block))
            got = trial.run(carved, f"a model with one of the {unit} less")
            with ExitStack() as stack:
                for zeroed in range(len(places.blocks)) if everywhere else (block,):
                    stack.enter_context(trial.zeroed(unit, zeroed, 1))
                expected = trial.run(trial.model, f"the model with one of the {unit} at zero")
            where = f"the first of the {unit} of '{places.blocks[block]}'"
            trial.expect_same(got, expected, f"{where}, carved away, must be as good as multiplied by zero")


def _check_shape(trial: FamilyTrial, name: str, shape: Shape) -> None:
    family, model = trial.family, trial.model
    elastic = Elastic(twin(model, torch.clone), {name: shape}, family)
    carved = elastic.carved(name)
    expected = trial.run(carved, f"the model carved at {name}")
    output = _flat(model, elastic(name, **trial.batch))
    trial.expect_same(output.detach(), expected, f"at {name} the elastic network must be the carved one")
    if shape == trial.places.full:
        trial.expect_same(expected, trial.logits, "width 1 must be the model itself")
    output.pow(2).sum().backward()
    _check_gradients(trial, name, shape, elastic.model)
    if isinstance(model, transformers.PreTrainedModel) and shape != trial.places.full:
        loaded = trial.run(_reloaded(carved, family), f"the model carved at {name}, saved and loaded,")
        trial.expect_same(loaded, expected, f"at {name} the carved model must load as it was saved")


def _check_gradients(trial: FamilyTrial, name: str, shape: Shape, model: nn.Module) -> None:
    full = twin(trial.model, torch.clone)
    _flat(full, full(**trial.batch)).pow(2).sum().backward()
    used = {name for name, parameter in full.named_parameters() if parameter.grad is not None}
    kept_slices = {kept.source: kept for kept in slices(trial.model, trial.places, shape).values()}
    for weight, parameter in model.named_parameters():
        if weight not in kept_slices:
            if parameter.grad is not None:
                raise trial.broken(f"at {name} '{weight}', dropped, got a gradient")
        elif weight in used:
            if parameter.grad is None:
                raise trial.broken(f"at {name} '{weight}' got no gradient")
            outside = parameter.grad.clone()
            kept = kept_slices[weight]
            for start, end in kept.ranges:
                outside.narrow(kept.dim, start, end - start).zero_()
            if kept.ranges and bool(outside.any()):
                raise trial.broken(f"at {name} '{weight}' got a gradient where it is cut")


def _shapes(trial: FamilyTrial) -> dict[str, Shape]:
    full = trial.places.full
    shapes = {"width 1": full}
    for width, depth in ((Fraction(3, 4), 1), (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 2 * max(full.heads)), 1)):
        try:
            shapes[f"width {width}, depth {depth}"] = shape_for(full, width, depth)
        except UserError:  # layers of different sizes: too narrow for some
            continue
    heads, ffn = (tuple(count - layer % count for layer, count in enumerate(s)) for s in (full.heads, full.ffn))
    uneven = replace(full, ffn=full.ffn if trial.family.layers_share_weights else ffn)
    shapes["layers of different sizes"] = replace(uneven, heads=full.heads if trial.family.heads_are_shared else heads)
    return shapes


def _reloaded(model: Any, family: Family) -> Any:
    known = patch.dict(FAMILIES, {family.model_type: family})
    with known, tempfile.TemporaryDirectory() as folder, quiet_transformers():
        saved = save_carved(model, Path(folder) / "carved", family=family)
        kind = carved_class(plain_class(type(model)))
        return kind.from_pretrained(saved, dtype=torch.float64, local_files_only=True, trust_remote_code=False).eval()


def _scores(places: Places, rule: Any, *, only: str) -> Importance:
    """Importances by a rule for one kind of unit; the other stays in its order."""
    counts = {unit: [places.count(unit, block) for block in range(len(places.blocks))] for unit in (HEADS, NEURONS)}
    scores = {
        unit: tuple(1.0 * rule(count) if unit == only else np.zeros(count) for count in counts[unit]) for unit in counts
    }
    return Importance(scores[HEADS], scores[NEURONS], 1)


def _one_less(full: Shape, unit: str, block: int | None) -> Shape:
    sizes = full.heads if unit == HEADS else full.ffn
    less = tuple(max(1, size - (block is None or layer == block)) for layer, size in enumerate(sizes))
    return replace(full, heads=less) if unit == HEADS else replace(full, ffn=less)


class FamilyTrial:
    """A family's description, a model of it with weights drawn anew, in FP64, a batch, and the logits on it."""

    def __init__(self, family: Family, model: Any, batch: Mapping[str, torch.Tensor] | None) -> None:
        self.family, self.model = family, _drawn(model)
        self.places = locate(self.model, family)
        if batch is None:
            usual = sample_batches(self.model, input_names(self.model))[0]
            batch = {name: torch.from_numpy(array) for name, array in usual.items()}
        self.batch = dict(batch)
        self.logits = self.run(self.model, "the model itself")

    def run(self, model: Any, what: str) -> torch.Tensor:
        """All that a model gives, in one row; `what` names it in messages."""
        try:
            with torch.no_grad():
                return _flat(model, model(**self.batch))
        except (RuntimeError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise self.broken(f"{what} does not run ({reason}); is a layer or an attribute left out?") from error

    def expect_same(self, got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        """Compare logits."""
        off, largest = (got - expected).abs().max().item(), expected.abs().max().item()
        if not off <= TOLERANCE * max(1.0, largest):
            raise self.broken(f"{what}; logits are off by {off:.1e}, the largest is {largest:.1e}")

    def broken(self, what: str) -> AssertionError:
        """Say what is wrong with the description."""
        return AssertionError(f"The description of '{self.family.model_type}' is not right: {what}.")

    def attribute(self, block: str, path: str) -> int:
        """A number that a layer holds."""
        owner, _, leaf = f"{block}.{path}".rpartition(".")
        return int(getattr(self.model.get_submodule(owner), leaf))

    @contextmanager
    def zeroed(self, unit: str, block: int, count: int) -> Iterator[None]:
        """Multiply the first heads or neurons of a block by zero for a while."""
        size = 1 if unit == NEURONS else self.attribute(self.places.blocks[block], self.family.head_size)

        def zero(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            kept = inputs[0].clone()
            kept[..., : count * size] = 0
            return (kept, *inputs[1:])

        handle = self.model.get_submodule(self.places.outputs(unit)[block]).register_forward_pre_hook(zero)
        try:
            yield
        finally:
            handle.remove()


def _flat(model: Any, output: Any) -> torch.Tensor:
    """Every tensor that a model gave, in one row."""
    return torch.cat([tensor.flatten() for tensor in as_tuple(output, output_names(model))])


def _drawn(model: Any) -> Any:
    """The model in FP64 and eval mode, its weights drawn so that every part makes a difference."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = _built(model) if isinstance(model, transformers.PretrainedConfig) else model
        if not isinstance(made, nn.Module):
            raise UserError(f"A model or a config is expected. Got {type(model).__name__}.")
        drawn = twin(made, torch.clone).double().eval().requires_grad_(True)
        with torch.no_grad():
            for name, parameter in drawn.named_parameters():
                near = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
                spread = 0.1 if parameter.ndim == 1 else 1.5 * parameter.shape[-1] ** -0.5
                parameter.copy_(near + spread * torch.randn_like(parameter))
    return drawn


def _built(config: Any) -> Any:
    for task in heads():
        auto = getattr(transformers, f"AutoModelFor{task}")
        if type(config) in auto._model_mapping:
            return auto.from_config(config)
    raise UserError(f"transformers has no model with a head for '{config.model_type}'.", hint="Give the model itself.")
