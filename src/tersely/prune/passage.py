"""Run a model from one of its layers to another, and see what goes through the linear layers on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..engines.torch import as_tuple, output_names
from ..models.carve import Places, locate
from ..models.families import Family


@dataclass
class Seen:
    """What watched modules took and gave, in the order of their calls; `outputs` of the model, unless it stopped."""

    inputs: dict[str, list[torch.Tensor]] = field(default_factory=lambda: defaultdict(list))
    outputs_of: dict[str, list[torch.Tensor]] = field(default_factory=lambda: defaultdict(list))
    outputs: tuple[torch.Tensor, ...] = ()


class _Stop(Exception):
    """Raised where a passage ends; never seen outside."""


class Passage:
    """A model in eval mode whose layers can be passed one by one.

    Everything around the layers (embeddings, masks, what a family does between two of them) is the model's own code:
    layers before the first are skipped, the first one gets the state in their place. The tensors are the model's.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self.model: Any = model
        self.places: Places = locate(model, family)
        self._names = output_names(model)
        self._forms: dict[str, Callable[[Any], Any]] = {}

    def run(
        self,
        inputs: Mapping[str, torch.Tensor],
        watch: Collection[str] = (),
        *,
        start: tuple[int, torch.Tensor] | None = None,
        stop: str | None = None,
    ) -> Seen:
        """Run from a layer, given its input, or from the beginning; until a module is about to run, or to the end."""
        seen = Seen()
        watching = self._watching(seen, {*watch, *({stop} if stop else ())}, stop)
        with watching, self._skipping(start), torch.no_grad(), suppress(_Stop):
            seen.outputs = as_tuple(self.model(**inputs), self._names)
        return seen

    @contextmanager
    def _watching(self, seen: Seen, names: Collection[str], stop: str | None) -> Iterator[None]:
        handles = []

        def before(name: str) -> Callable[..., None]:
            def hook(_module: nn.Module, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
                seen.inputs[name].append(positional[0] if positional else named["hidden_states"])
                if name == stop:
                    raise _Stop

            return hook

        def after(name: str) -> Callable[..., None]:
            def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
                seen.outputs_of[name].append(output[0] if isinstance(output, tuple) else output)

            return hook

        try:
            for name in names:
                module = self.model.get_submodule(name)
                handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
                handles.append(module.register_forward_hook(after(name)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def _skipping(self, start: tuple[int, torch.Tensor] | None) -> Iterator[None]:
        """Let the layers before the first hand on what they get, and the first one take the state."""
        if start is None or start[0] == 0:
            with self._noting_forms():
                yield
            return
        number, state = start
        skipped = [(name, self.model.get_submodule(name)) for name in self.places.blocks[:number]]

        def enter(_module: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
            if positional:
                return (state, *positional[1:]), named
            return positional, {**named, "hidden_states": state}

        first = self.model.get_submodule(self.places.blocks[number])
        handle = first.register_forward_pre_hook(enter, with_kwargs=True, prepend=True)
        try:
            for name, block in skipped:
                block.forward = self._passing_on(self._forms[name])
            with self._noting_forms():
                yield
        finally:
            handle.remove()
            for _, block in skipped:
                del block.forward

    @contextmanager
    def _noting_forms(self) -> Iterator[None]:
        """Remember whether a layer gives a tensor or a tuple, for when it is skipped."""

        def note(name: str) -> Callable[..., None]:
            def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
                rest = len(output) - 1 if isinstance(output, tuple) else None
                self._forms.setdefault(name, lambda x: x if rest is None else (x, *([None] * rest)))

            return hook

        blocks = [(name, self.model.get_submodule(name)) for name in self.places.blocks if name not in self._forms]
        handles = [block.register_forward_hook(note(name)) for name, block in blocks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @staticmethod
    def _passing_on(form: Callable[[Any], Any]) -> Callable[..., Any]:
        def forward(*positional: Any, **named: Any) -> Any:
            return form(positional[0] if positional else named["hidden_states"])

        return forward


def real_positions(inputs: Mapping[str, torch.Tensor], *, first_only: bool = False) -> torch.Tensor:
    """Where a batch holds tokens, not padding [rows, length]; or the first position of each row alone."""
    ids = inputs["input_ids"]
    mask = inputs["attention_mask"] != 0 if "attention_mask" in inputs else torch.ones_like(ids, dtype=torch.bool)
    if first_only:
        mask = mask & (torch.arange(ids.shape[1]) == 0)
    return mask
