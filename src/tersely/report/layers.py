"""What became of each layer of the chosen model: harm, integers, proof against saturation, and what stayed float."""

from __future__ import annotations

from . import numbers as n
from .run import Layer, Run
from .table import Column, Line, Table

KINDS = {"layer": ("layer", "layers"), "table": ("table", "tables"), "product": ("product", "products of attention")}


def summary(run: Run) -> list[str]:
    """How many are INT8, how many float, and whether sums can saturate anywhere."""
    by_kind: dict[str, int] = {}
    for one in run.layers:
        if one.precision == "int8":
            by_kind[one.kind] = by_kind.get(one.kind, 0) + 1
    done = [n.count(count, *KINDS.get(kind, (kind, kind))) for kind, count in by_kind.items()]
    left = sum(one.precision == "float" for one in run.layers)
    is_int8 = f"{_all(done)} of the chosen model {'is' if sum(by_kind.values()) == 1 else 'are'} INT8"
    said = [f"{is_int8 if done else 'Nothing of the chosen model is INT8'}; {left or 'none'} stayed float."]
    checked = [one for one in run.layers if one.unsafe_pairs is not None]
    unsafe = sum(one.unsafe_pairs or 0 for one in checked)
    if checked and not unsafe:
        said.append(
            f"In none of {n.count(len(checked), 'layer', 'layers')} can a sum of two products overflow 16 bits, "
            "whatever the input: the integers give the same sums on every CPU."
        )
    elif checked:
        said.append(
            f"{n.count(unsafe, 'pair', 'pairs')} of neighbouring weights can overflow 16 bits on CPUs without VNNI: "
            "there the answers may differ."
        )
    return said


def harm(run: Run) -> Table | None:
    """What each layer alone in INT8 does to the logits, the most harmful first; None where that was not measured."""
    if not run.sensitivity:
        return None
    columns = [Column("layer"), Column("mean |Δlogit|", True), Column("in the chosen model")]
    became = {one.name: one for one in run.layers}
    ordered = sorted(run.sensitivity.items(), key=lambda pair: -pair[1])
    lines = [Line([name, n.small(value), _became(run, became.get(name))], key=name) for name, value in ordered]
    return Table(columns, lines)


def floats(run: Run) -> dict[str, list[str]]:
    """Names of what stayed float, by the reason in words."""
    found: dict[str, list[str]] = {}
    for one in run.layers:
        if one.precision == "float":
            found.setdefault(run.reasons.get(one.reason or "", one.reason or "not said"), []).append(one.name)
    return found


def every_layer(run: Run) -> Table:
    """All layers, tables and products."""
    columns = [
        Column("name"),
        Column("kind"),
        Column("became"),
        Column("inputs × outputs", True),
        Column("input from", True, "the range of inputs that the integers cover"),
        Column("to", True),
        Column("smoothed", note="outliers were moved from the input into the weights"),
        Column("largest integer", True, "of its weights; 64 is 7 bits"),
        Column("unsafe pairs", True, "neighbouring weights whose products can overflow 16 bits; 0 is proof"),
        Column("harm alone", True, "mean |Δlogit| with this layer alone in INT8"),
    ]
    return Table(columns, [_line(run, one) for one in run.layers])


def _line(run: Run, one: Layer) -> Line:
    low, high = one.range if one.range and len(one.range) == 2 else (None, None)
    is_layer = one.precision == "int8" and one.kind == "layer"
    return Line(
        [
            one.name,
            one.kind if one.precision == "int8" else "",
            _became(run, one),
            " × ".join(map(str, one.shape)) if one.shape else "",
            "each batch" if is_layer and low is None else _number(low),
            _number(high),
            "yes" if one.smoothed else "",
            "" if one.largest_integer is None else str(one.largest_integer),
            "" if one.unsafe_pairs is None else str(one.unsafe_pairs),
            n.small(run.sensitivity.get(one.name)),
        ],
        "float" if one.precision == "float" else None,
    )


def _became(run: Run, one: Layer | None) -> str:
    if one is None:
        return ""
    return "INT8" if one.precision == "int8" else f"float: {run.reasons.get(one.reason or '', one.reason or '')}"


def _number(value: float | None) -> str:
    return "" if value is None else n.signless(f"{value:.3g}")


def _all(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
