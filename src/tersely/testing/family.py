"""`check_family`: proves that a description of a model family is right, on a model with weights drawn anew."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from ..errors import UserError
from ..models.carve import Places, Shape, carve, shape_for, slices, twin
from ..models.carve.model import carved_class, plain_class
from ..models.carve.places import HEADS, NEURONS
from ..models.families import FAMILIES, Family
from ..models.torch_folder import quiet_transformers
from ..prune import Elastic, Importance, reorder, save_carved
from .trial import TOLERANCE, Trial, flat


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
    trial = Trial(family, model, batch)
    _check_counts(trial)
    _check_dependence(trial)
    _check_orders(trial)
    _check_removal(trial)
    for name, shape in _shapes(trial).items():
        _check_shape(trial, name, shape)


def _check_counts(trial: Trial) -> None:
    """The attributes that a smaller layer gets must hold now what the description says that they hold."""
    family, places = trial.family, trial.places
    for block, name in enumerate(places.blocks):
        heads, size = places.full.heads[block], trial.attribute(name, family.head_size)
        for paths, expected in ((family.head_count, heads), (family.head_width, heads * size)):
            for path in paths:
                if trial.attribute(name, path) != expected:
                    held = trial.attribute(name, path)
                    raise trial.broken(f"'{name}.{path}' holds {held}; {expected} is expected")


def _check_dependence(trial: Trial) -> None:
    for unit in (HEADS, NEURONS):
        for block, output in enumerate(trial.places.outputs(unit)):
            with trial.zeroed(unit, block, trial.places.count(unit, block)):
                without = trial.run(trial.model, f"the model without the input of '{output}'")
            if not (without - trial.logits).abs().max().item() > 10 * TOLERANCE:
                raise trial.broken(f"the logits do not depend on the input of '{output}', where the {unit} should be")


def _check_orders(trial: Trial) -> None:
    draw = np.random.default_rng(0)
    for unit in (HEADS, NEURONS):
        scores = _scores(trial.places, draw.random, only=unit)
        turned = trial.run(reorder(trial.model, scores, trial.family), f"a model with another order of {unit}")
        trial.expect_same(turned, trial.logits, f"another order of {unit} must not change what the model gives")


def _check_removal(trial: Trial) -> None:
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
                for one in range(len(places.blocks)) if everywhere else (block,):
                    stack.enter_context(trial.zeroed(unit, one, 1))
                expected = trial.run(trial.model, f"the model with one of the {unit} at zero")
            where = f"the first of the {unit} of '{places.blocks[block]}'"
            trial.expect_same(got, expected, f"{where}, carved away, must be as good as multiplied by zero")


def _check_shape(trial: Trial, name: str, shape: Shape) -> None:
    family, model = trial.family, trial.model
    elastic = Elastic(twin(model, torch.clone), {name: shape}, family)
    carved = elastic.carved(name)
    expected = trial.run(carved, f"the model carved at {name}")
    output = flat(model, elastic(name, **trial.batch))
    trial.expect_same(output.detach(), expected, f"at {name} the elastic network must be the carved one")
    if shape == trial.places.full:
        trial.expect_same(expected, trial.logits, "width 1 must be the model itself")
    output.pow(2).sum().backward()
    _check_gradients(trial, name, shape, elastic.model)
    if isinstance(model, transformers.PreTrainedModel) and shape != trial.places.full:
        loaded = trial.run(_reloaded(carved, family), f"the model carved at {name}, saved and loaded,")
        trial.expect_same(loaded, expected, f"at {name} the carved model must load as it was saved")


def _check_gradients(trial: Trial, name: str, shape: Shape, model: nn.Module) -> None:
    whole = twin(trial.model, torch.clone)
    flat(whole, whole(**trial.batch)).pow(2).sum().backward()
    used = {name for name, parameter in whole.named_parameters() if parameter.grad is not None}
    pieces = {piece.source: piece for piece in slices(trial.model, trial.places, shape).values()}
    for weight, parameter in model.named_parameters():
        if weight not in pieces:
            if parameter.grad is not None:
                raise trial.broken(f"at {name} '{weight}', dropped, got a gradient")
        elif weight in used:
            if parameter.grad is None:
                raise trial.broken(f"at {name} '{weight}' got no gradient")
            outside = parameter.grad.clone()
            kept = pieces[weight]
            for start, end in kept.ranges:
                outside.narrow(kept.dim, start, end - start).zero_()
            if kept.ranges and bool(outside.any()):
                raise trial.broken(f"at {name} '{weight}' got a gradient where it is cut")


def _shapes(trial: Trial) -> dict[str, Shape]:
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
    known = FAMILIES.get(family.model_type)
    FAMILIES[family.model_type] = family
    try:
        with tempfile.TemporaryDirectory() as folder, quiet_transformers():
            saved = save_carved(model, Path(folder) / "carved", family=family)
            kind = carved_class(plain_class(type(model)))
            return kind.from_pretrained(
                saved, dtype=torch.float64, local_files_only=True, trust_remote_code=False
            ).eval()
    finally:
        if known is None:
            del FAMILIES[family.model_type]
        else:
            FAMILIES[family.model_type] = known


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
