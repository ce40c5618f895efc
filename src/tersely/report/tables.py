"""What a report shows in tables: candidates, layers, changed rows, confused labels, and how to run it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from . import numbers as n
from .markup import Cell, Column, ReportTable, TableLine
from .run import FinishedRun, LayerResult, ModelResult, PrunedModel, Row

KINDS = {"layer": ("layer", "layers"), "table": ("table", "tables"), "product": ("product", "products of attention")}
VERDICTS = {"worse": "worse", "better": "better", "neither": "no better, no worse"}


def candidates(run: FinishedRun) -> ReportTable:
    """A line for FP32 and one for each candidate, the chosen one first, and why each other was not chosen."""
    unit = "points" if run.fraction else ""
    columns = [
        Column("model"),
        Column(f"{run.metric}, 95 %", True, unit or None),
        Column("drop, 95 %", True, f"{unit} below FP32 on the same rows; the interval is paired".strip()),
        Column("× at target", True, f"times as fast as the fastest FP32 engine at {run.target}; this chooses"),
        Column("why not chosen", words=True),
        Column("same answers %", True, "share of answers equal to FP32's"),
        Column("Δlogit", True, "mean |Δlogit|, the change of a logit against FP32"),
        Column("MB", True, "megabytes that are loaded"),
        Column("% of FP32", True, "its size"),
        *[Column(f"× at {n.batch(size)}", True, "times as fast as the fastest FP32 engine") for size in run.batches],
        Column("Pareto", note="not beaten in score, speed and size at once"),
    ]
    ordered = sorted(run.candidates, key=lambda model: model.name != run.best)
    return ReportTable(columns, [_candidate_line(run, model) for model in (run.fp32, *ordered)])


def _candidate_line(run: FinishedRun, model: ModelResult) -> TableLine:
    is_fp32 = model is run.fp32
    chosen = not is_fp32 and model.name == run.best
    timed = {size: n.times(speed.ratio) for size, speed in model.speed_by_batch.items()}
    engine = ", ".join(dict.fromkeys(model.engine_by_batch.values())) if is_fp32 else model.engine
    at_target = n.times(model.speedup.ratio) if model.speedup else "1.00" if is_fp32 and run.chosen.speedup else ""
    made = " on ".join(part for part in (model.strategy, engine) if part)
    cells: list[Cell] = [
        (f"{model.name}{', chosen' if chosen else ''}", made),
        ("not scored", "") if model.score is None else (n.score(run, model.score), n.interval(run, model.interval)),
        (n.score(run, model.drop), n.interval(run, model.drop_interval)),
        at_target,
        model.why_not or "",
        n.percent(model.same_answer),
        n.small(model.mean_abs_logit_change),
        n.megabytes(model.size) if model.size else "",
        f"{100 * model.size / run.fp32.size:.1f}" if model.size and run.fp32.size else "",
        *["1.00" if is_fp32 else timed.get(size, "") for size in run.batches],
        "yes" if model.pareto else "",
    ]
    return TableLine(cells, "fp32" if is_fp32 else "chosen" if chosen else None, None if is_fp32 else model.name)


def remarks(run: FinishedRun) -> list[str]:
    """What was made and is not in the table."""
    said = [f"{name} is the same as {twin}." for name, twin in run.same.items()]
    if run.screened_out:
        names = ", ".join(str(candidate.get("name")) for candidate in run.screened_out)
        said.append(f"Left out after a look at a few rows: {names}.")
    return said + [_pruned(run, model) for model in run.pruned]


def _pruned(run: FinishedRun, model: PrunedModel) -> str:
    parts = []
    if (shot := model.shot) is not None:
        parts.append(f"{n.times(shot.seen)} × when it was cut, for {shot.target:g} ×, by {shot.method}")
    if model.width is not None:
        parts.append(f"width {model.width}, depth {model.depth}")
    if model.torch_score is not None:
        parts.append(f"{run.metric} {n.score(run, model.torch_score)} in torch at step {model.step}")
    if "tokens_after" in model.vocabulary:
        parts.append(f"{model.vocabulary['tokens_after']:,} of {model.vocabulary.get('tokens_before'):,} tokens")
    return f"Pruned model {model.name}: {'; '.join(parts)}."


def layers_summary(run: FinishedRun) -> list[str]:
    """How many are INT8, how many float, and whether sums can saturate anywhere."""
    by_kind = Counter(layer.kind for layer in run.layers if layer.precision == "int8")
    done = [n.count(count, *KINDS.get(kind, (kind, kind))) for kind, count in by_kind.items()]
    left = sum(layer.precision == "float" for layer in run.layers)
    listed = " and ".join([", ".join(done[:-1]), done[-1]] if len(done) > 1 else done)
    is_int8 = f"{listed} of the chosen model {'is' if by_kind.total() == 1 else 'are'} INT8"
    said = [f"{is_int8 if done else 'Nothing of the chosen model is INT8'}; {left or 'none'} stayed float."]
    checked = [layer.unsafe_pairs for layer in run.layers if layer.unsafe_pairs is not None]
    if checked and not sum(checked):
        said.append(
            f"In none of {n.count(len(checked), 'layer', 'layers')} can a sum of two products overflow 16 bits, "
            "whatever the input: the integers give the same sums on every CPU."
        )
    elif checked:
        said.append(
            f"{n.count(sum(checked), 'pair', 'pairs')} of neighbouring weights can overflow 16 bits on CPUs without "
            "VNNI: there the answers may differ."
        )
    return said


def harm(run: FinishedRun) -> ReportTable | None:
    """What each layer alone in INT8 does to the logits, the most harmful first; None where that was not measured."""
    if not run.sensitivity:
        return None
    columns = [Column("layer"), Column("mean |Δlogit|", True), Column("in the chosen model")]
    became = {layer.name: _became(run, layer) for layer in run.layers}
    ordered = sorted(run.sensitivity.items(), key=lambda pair: -pair[1])
    return ReportTable(
        columns, [TableLine([name, n.small(value), became.get(name, "")], key=name) for name, value in ordered]
    )


def floats(run: FinishedRun) -> dict[str, list[str]]:
    """Names of what stayed float, by the reason in words."""
    found: dict[str, list[str]] = {}
    for layer in run.layers:
        if layer.precision == "float":
            found.setdefault(run.reasons.get(layer.reason or "", layer.reason or "not said"), []).append(layer.name)
    return found


def every_layer(run: FinishedRun) -> ReportTable:
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
    return ReportTable(columns, [_layer_line(run, layer) for layer in run.layers])


def _layer_line(run: FinishedRun, layer: LayerResult) -> TableLine:
    low, high = layer.range if layer.range and len(layer.range) == 2 else (None, None)
    is_int8 = layer.precision == "int8"
    cells = [
        layer.name,
        layer.kind if is_int8 else "",
        _became(run, layer),
        " × ".join(map(str, layer.shape)) if layer.shape else "",
        "each batch" if is_int8 and layer.kind == "layer" and low is None else n.three_digits(low),
        n.three_digits(high),
        "yes" if layer.smoothed else "",
        "" if layer.largest_integer is None else str(layer.largest_integer),
        "" if layer.unsafe_pairs is None else str(layer.unsafe_pairs),
        n.small(run.sensitivity.get(layer.name)),
    ]
    return TableLine(cells, "float" if layer.precision == "float" else None)


def _became(run: FinishedRun, layer: LayerResult) -> str:
    is_int8 = layer.precision == "int8"
    return "INT8" if is_int8 else f"float: {run.reasons.get(layer.reason or '', layer.reason or '')}"


def changes_summary(run: FinishedRun) -> str:
    """How many answers changed, for the worse and for the better."""
    found = run.changes
    if found is None:
        return ""
    if not found.changed:
        return f"None of {n.count(found.rows, 'answer', 'answers')} changed."
    said = f"{found.changed:,} of {n.count(found.rows, 'row', 'rows')} got another answer than from FP32"
    if found.worse is None or found.better is None:
        return f"{said}; without labels none can be called better or worse."
    neither = found.changed - found.worse - found.better
    return f"{said}: {found.worse:,} a worse one, {found.better:,} a better one, {neither:,} neither."


def changed(run: FinishedRun) -> ReportTable | None:
    """The worst changed rows; None where none changed or an older run did not write them."""
    if run.changes is None or not run.changes.shown:
        return None
    names = ("row", "text", "FP32 said", f"{run.best} says", "right is", "which is")
    return ReportTable([Column(name) for name in names], [_changed_line(row) for row in run.changes.shown])


def _changed_line(row: Row) -> TableLine:
    texts, verdict = " ⏎ ".join(row.texts.values()), VERDICTS.get(row.verdict or "", "")
    return TableLine([PurePath(row.where).name, texts, row.fp32, row.best, row.gold or "", verdict], row.verdict)


def shares(run: FinishedRun) -> list[list[float]]:
    """Of each label's rows the share that got which answer from the chosen model."""
    found = run.confusion.best if run.confusion is not None else ()
    return [[count / max(1, sum(row)) for count in row] for row in found]


def confusion(run: FinishedRun) -> ReportTable | None:
    """Counts of the chosen model, with their difference to FP32's; None where that has no meaning."""
    found = run.confusion
    if found is None:
        return None
    columns = [Column("right is ↓  answered →"), *[Column(label, True) for label in found.labels]]
    lines = []
    for label, before, after in zip(found.labels, found.fp32, found.best, strict=True):
        cells = [n.changed_count(was, now) for was, now in zip(before, after, strict=True)]
        lines.append(TableLine([label, *cells]))
    return ReportTable(columns, lines)


def command(run: FinishedRun) -> str | None:
    """The command as it was given, one option a line; None for runs from Python or of older versions."""
    text = run.settings.get("command")
    if not isinstance(text, str):
        return None
    try:
        words = shlex.split(text)
    except ValueError:
        return text
    lines = [words[:1]]
    for word in words[1:]:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def made_with(run: FinishedRun) -> ReportTable:
    """Rows, machine and versions."""
    counts = {"train": "trained", "unlabelled": "unlabelled", "calibration": "calibrated"}
    counts |= {"search": "were searched by", "scoring": "scored and chose", "test": "tested"}
    rows = [f"{run.rows[name]:,} {what}" for name, what in counts.items() if run.rows.get(name)]
    cpu = (run.cpu.get("name"), f"class {run.cpu['class']}" if run.cpu.get("class") else "")
    values = {
        "task": run.task.replace("_", " "),
        "rows": ", ".join(rows),
        **{f"{name} rows from": file for name, file in _mapping(run.settings.get("files")).items()},
        "seed": _mapping(run.settings.get("options")).get("seed"),
        "CPU": ", ".join(str(part) for part in cpu if part),
        "system": run.settings.get("system") or "",
        "FP32 graph, sha256": run.fp32.sha256,
        "tersely": run.tersely_version,
        "Python": run.settings.get("python") or "",
        **_mapping(run.settings.get("packages")),
    }
    lines = [TableLine([name, _words(value)]) for name, value in values.items() if value not in ("", None)]
    return ReportTable([Column("what"), Column("value")], lines)


def options(run: FinishedRun) -> ReportTable | None:
    """All options of the run, those that were set first; None for older runs."""
    found = _mapping(run.settings.get("options"))
    if not found:
        return None
    are_set = set(run.settings.get("given") or ())
    lines = [TableLine([name, _words(value), "set" if name in are_set else ""]) for name, value in found.items()]
    lines.sort(key=lambda line: line.cells[2] != "set")
    for part in ("training", "task_options", "columns"):
        lines += [TableLine([name, _words(value), "set"]) for name, value in _mapping(run.settings.get(part)).items()]
    return ReportTable([Column("option"), Column("value"), Column("")], lines)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _words(value: Any) -> str:
    """A value as one would type it.

    >>> _words(["mse", "KL"]), _words(None), _words(True)
    ('mse KL', 'none', 'true')
    """
    if isinstance(value, (list, tuple)):
        return " ".join(map(_words, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return str(value)
