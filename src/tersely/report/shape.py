"""The shape of the chosen model where it was pruned: heads and neurons that each layer kept."""

from __future__ import annotations

from dataclasses import dataclass

from . import numbers as n
from .markup import Column, Markup, ReportTable, TableLine, tag
from .run import FinishedRun

CAPTION = "Layers from the first to the last, numbered as in the names of their weights. The frame is the full size."


@dataclass(frozen=True)
class LayerLeft:
    """A layer of the user's model by its number, and what is left of it: kept and full."""

    layer: int
    heads: tuple[int, int]
    neurons: tuple[int, int]


def layers_left(run: FinishedRun) -> list[LayerLeft]:
    """Every layer of the user's model, also those that are gone; none where nothing was pruned or no shape is known."""
    pruned, full = run.chosen_pruned, run.fp32.shape
    kept = None if pruned is None else pruned.shape
    if kept is None or full is None:
        return []
    sizes = {layer: (heads, ffn) for layer, heads, ffn in zip(kept.layers, kept.heads, kept.ffn, strict=False)}
    found = []
    for layer, heads, ffn in zip(full.layers, full.heads, full.ffn, strict=False):
        left = sizes.get(layer, (0, 0))
        found.append(LayerLeft(layer, (left[0], heads), (left[1], ffn)))
    return found


def shape_summary(run: FinishedRun) -> list[str]:
    """How much is left, and how the model was pruned."""
    left, pruned = layers_left(run), run.chosen_pruned
    if not left or pruned is None:
        return []
    heads, neurons = [layer.heads for layer in left], [layer.neurons for layer in left]
    said = f"{_sum(heads)} heads and {_sum(neurons)} neurons are left."
    empty = [_empty(heads, "has no attention", "have no attention"), _empty(neurons, "has no FFN", "have no FFN")]
    found = [said + "".join(empty)]
    if (shot := pruned.shot) is not None:
        was = f"measured {n.times(shot.seen)} ×, by the times of its layers {n.times(shot.expected)} ×"
        found.append(
            f"Pruned without training for {shot.target:g} × ({was}), heads and neurons ranked by {shot.method}."
        )
        found[-1] += f" Then trained {n.count(pruned.step, 'step', 'steps')}." if pruned.step else ""
    elif pruned.width is not None:
        found.append(f"Pruned by dynabert: width {pruned.width}, depth {pruned.depth}, trained.")
    return found


def shape_picture(run: FinishedRun) -> Markup:
    """A bar for each layer's heads and one for its neurons; nothing where nothing was pruned."""
    left = layers_left(run)
    if not left:
        return Markup("")
    rows = []
    for layer in left:
        bars = [_bar(layer.layer, *layer.heads, "heads"), _bar(layer.layer, *layer.neurons, "neurons")]
        rows.append(tag("tr", tag("th", str(layer.layer), scope="row"), *bars))
    heads = [tag("th", name, scope="col") for name in ("layer", "attention heads", "FFN neurons")]
    table = tag("table", tag("caption", tag("span", CAPTION)), tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag("figure", table, class_="shape")


def shape_table(run: FinishedRun) -> ReportTable | None:
    """The same in words."""
    left = layers_left(run)
    if not left:
        return None
    lines = [TableLine([str(layer.layer), _kept(*layer.heads), _kept(*layer.neurons)]) for layer in left]
    return ReportTable([Column("layer"), Column("attention heads", True), Column("FFN neurons", True)], lines)


def _bar(layer: int, kept: int, full: int, what: str) -> Markup:
    said = f"layer {layer}: {_kept(kept, full)} {what}"
    frame = tag("rect", width=100, height=10, class_="full")
    bar = tag("rect", width=100 * kept / max(1, full), height=10, class_="kept")
    drawn = tag(
        "svg",
        tag("title", said),
        frame,
        bar,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
    )
    return tag("td", tag("div", drawn, tag("span", _kept(kept, full))), class_=None if kept else "empty")


def _kept(kept: int, full: int) -> str:
    """What is left in words.

    >>> _kept(3, 12), _kept(0, 1536)
    ('3 of 12', 'none of 1,536')
    """
    return f"{kept:,} of {full:,}" if kept else f"none of {full:,}"


def _sum(pairs: list[tuple[int, int]]) -> str:
    return f"{sum(kept for kept, _ in pairs):,} of {sum(full for _, full in pairs):,}"


def _empty(pairs: list[tuple[int, int]], singular: str, plural: str) -> str:
    gone = sum(not kept for kept, _ in pairs)
    return f" {gone} {'layer' if gone == 1 else 'layers'} {singular if gone == 1 else plural}." if gone else ""
