"""How a key of AutoCompression's files is read: rules, each made by a function that says what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from ...errors import UserError, nearest
from .document import Entry
from .setting import Gathered, Setting

Rule = Callable[[Gathered, Entry, str], None]
"""Reads what stands under a key: where to, what, the key with its section."""


def read(rules: Mapping[str, Rule], entry: Entry, section: str, into: Gathered) -> None:
    """Apply the rules of a section to what stands in it."""
    if entry.entries is None:
        raise UserError("This must hold keys and values.", where=into.where(section, entry))
    for name, inner in entry.entries.items():
        key = f"{section}.{name}"
        if name not in rules:
            raise UserError(
                f"There is no '{name}' in '{section}'.", where=into.where(key, inner), hint=nearest(name, rules)
            )
        rules[name](into, inner, key)


def to(*options: str) -> Rule:
    """The same under another name."""

    def rule(into: Gathered, entry: Entry, key: str) -> None:
        for option in options:
            into.put(option, entry, key)

    return rule


def idle(reason: str) -> Rule:
    """Means nothing here."""
    return lambda into, entry, key: into.leave(key, reason)


def only(*allowed: str, hint: str) -> Rule:
    """Must be one of some words, or not be there."""

    def rule(into: Gathered, entry: Entry, key: str) -> None:
        word = into.one(entry, key)
        if word is not None and word not in allowed:
            what = f"'{key}' must be {' or '.join(allowed)}. Got '{word}'."
            raise UserError(what, where=into.where(key, entry), hint=hint)

    return rule


def words(option: str, known: Mapping[str, str]) -> Rule:
    """A word of theirs for a word of ours."""

    def rule(into: Gathered, entry: Entry, key: str) -> None:
        word = into.one(entry, key)
        if word is not None and word not in known:
            raise UserError(f"'{key}' cannot be '{word}'.", where=into.where(key, entry), hint=nearest(word, known))
        if word is not None:
            into.say(option, known[word], entry, key)

    return rule


def inside(rules: Mapping[str, Rule], otherwise: Rule | None = None) -> Rule:
    """Keys of its own; `otherwise`: what a plain value is."""

    def rule(into: Gathered, entry: Entry, key: str) -> None:
        if otherwise is not None and not isinstance(entry.value, Mapping):
            otherwise(into, entry, key)
        else:
            read(rules, entry, key, into)

    return rule


def graph(into: Gathered, entry: Entry, key: str) -> None:
    """A graph of ONNX is one that can be compressed; of Paddle's the model folder stands in its place."""
    word = into.one(entry, key)
    if word is not None and word.endswith(".onnx"):
        into.put("input_infer_model_path", entry, key)
    else:
        into.leave(key, "Paddle graphs are not read: name a transformers folder")


def width(into: Gathered, entry: Entry, key: str) -> None:
    """What is left of a ratio that is pruned."""
    shares = []
    for word in into.words(entry, key) or ():
        try:
            share = 1 - Fraction(word)
        except (ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not 0 < share < 1:
            raise UserError(f"'{key}' must be between 0 and 1. Got '{word}'.", where=into.where(key, entry))
        shares.append(str(share))
    if shares:
        into.settings["width_mult_list"] = Setting("width_mult_list", tuple(shares), into.where(key, entry), key)


def single(option: str) -> Rule:
    """A list of what to try, of which there can be one here."""

    def rule(into: Gathered, entry: Entry, key: str) -> None:
        found = into.words(entry, key) or ()
        if len(found) == 1:
            into.say(option, found[0], entry, key)
        elif found:
            into.leave(key, "one value is used for all candidates")

    return rule


def reconstruct(into: Gathered, entry: Entry, key: str) -> None:
    """Layers that are fitted to their outputs: what `adaround` does."""
    only("layer-wise", hint="Rounding is learnt layer by layer.")(into, entry, key)
    if into.one(entry, key) is not None:
        into.say("round_type", "adaround", entry, key)
