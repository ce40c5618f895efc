"""`report.html`: one file with its style and script inside; the answer first, then what it rests on."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from . import answer, tables
from .ladder import ladder, ladder_summary
from .markup import Markup, html_table, join, tag
from .plot import described, plot
from .run import FinishedRun
from .shape import shape_picture, shape_summary
from .wish import wished

GENERATOR = "tersely report"
NAMES = "A name tells what was pruned, the calibrator with its number of rows, and whether embeddings are INT8 too."
KINDS_OF_POINTS = {
    "chosen": "chosen",
    "front": "on the Pareto front: not beaten in score, speed and size at once",
    "beaten": "beaten by another",
    "fp32": "FP32",
}
FORMS = ("untrained", "trained")
SHOWN = 12
"""Layers whose harm is drawn; the others are in the table of all."""


def page(run: FinishedRun) -> str:
    """The whole page. The same run gives the same bytes."""
    style, script = _asset("style.css"), _asset("script.js")
    title = f"{run.model}: {run.best}"
    drawn = (_answer, _plot, _ladder, _candidates, _shape, _layers, _changed, _confusion, _again)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=GENERATOR),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    foot = tag("footer", f"Written by tersely {run.tersely_version} from result.json.")
    body = tag("body", tag("main", join(*[draw(run) for draw in drawn])), foot, tag("script", Markup(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _answer(run: FinishedRun) -> Markup:
    kind = f"{run.task.replace('_', ' ')}, chosen among {len(run.candidates)}"
    tiles = [
        tag(
            "div",
            tag("dt", fact.name),
            tag("dd", fact.figure, class_="figure"),
            *[tag("dd", _unbroken(line)) for line in fact.beside if line],
            class_="tile",
        )
        for fact in answer.facts(run)
    ]
    stamps = [
        tag("li", _unbroken(line), class_="bad" if line.startswith("Not met") else None) for line in answer.stamps(run)
    ]
    return tag(
        "header",
        tag("p", tag("bdi", run.model), ", ", kind, class_="over"),
        tag("h1", tag("bdi", _unbroken(answer.headline(run)))),
        tag("dl", *tiles, class_="tiles"),
        tag("ul", *stamps, class_="stamps") if stamps else "",
    )


def _plot(run: FinishedRun) -> Markup:
    wide, narrow = plot(run, 1000, 440), plot(run, 380, 400)
    if not wide:
        return Markup("")
    others = {"front" if model.pareto else "beaten" for model in run.candidates if model.name != run.best}
    entries = [
        tag("li", tag("span", class_=f"key {kind}", aria_hidden="true"), what)
        for kind, what in KINDS_OF_POINTS.items()
        if kind in {"chosen", "fp32", *others}
    ]
    if any(model.trained for model in run.candidates):
        entries += [tag("li", tag("span", class_=f"key {kind}", aria_hidden="true"), kind) for kind in FORMS]
    whisker = "A whisker is the 95 % interval of the drop: where it crosses the dashed line, FP32's score, the rows do "
    whisker += "not tell the two apart. "
    at_target = run.target is not None and run.chosen.speedup is not None
    says = f"Area is size; speed is {f'at {run.target}' if at_target else 'the geometric mean over batch sizes'}. "
    says += f"{wished(run)} "
    says += whisker if run.scored and any(model.drop_interval for model in run.candidates) else ""
    says += "The dotted line is the best to be had at each speed."
    figure = tag(
        "figure",
        tag("div", wide, class_="wide"),
        tag("div", narrow, class_="narrow"),
        tag("p", described(run, run.chosen), class_="detail", aria_live="polite"),
        tag("ul", *entries, class_="keys"),
        tag("figcaption", _unbroken(says)),
    )
    return _section("Score against speed" if run.scored else "Answers against speed", figure)


def _ladder(run: FinishedRun) -> Markup:
    table = ladder(run)
    if table is None:
        return Markup("")
    drawn = html_table(table, _unbroken(ladder_summary(run)))
    return _section("What was tried", tag("div", drawn, class_="ladder"))


def _shape(run: FinishedRun) -> Markup:
    picture = shape_picture(run)
    if not picture:
        return Markup("")
    said = [tag("p", line) for line in shape_summary(run)]
    return _section("Shape of the chosen model", *said, picture)


def _candidates(run: FinishedRun) -> Markup:
    said = [tag("p", line) for line in (run.rule, *tables.remarks(run)) if line]
    return _section("Candidates", html_table(tables.candidates(run), NAMES, sortable=True), *said)


def _layers(run: FinishedRun) -> Markup:
    if not run.layers:
        return Markup("")
    parts: list[str] = [tag("p", line) for line in tables.layers_summary(run)]
    if run.sensitivity:
        parts.append(_harm(run))
    else:
        parts.append(tag("p", "The harm of each layer was not measured; ", tag("code", "--sensitivity"), " does that."))
    for reason, names in tables.floats(run).items():
        listed = join(*[tag("code", name) for name in names], by=", ")
        parts.append(tag("p", tag("b", f"Float, {reason}: "), listed))
    table = html_table(tables.every_layer(run), "Layers, tables and products")
    parts.append(tag("details", tag("summary", f"All {len(run.layers)} in a table"), table))
    return _section("Layers", *parts)


def _harm(run: FinishedRun) -> Markup:
    ordered = sorted(run.sensitivity.items(), key=lambda pair: -pair[1])
    largest = max(ordered[0][1], 1e-12)
    bars = []
    for name, value in ordered[:SHOWN]:
        bar = tag("rect", width=100 * value / largest, height=10)
        drawn = tag("svg", bar, viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")
        bars.append(tag("div", tag("dt", name), tag("dd", drawn, f"{value:.4f}")))
    more = f" The other {len(ordered) - SHOWN} do less." if len(ordered) > SHOWN else ""
    says = f"Harm: how far logits move on average (mean |Δlogit|) with one layer alone in INT8.{more}"
    return tag("figure", tag("figcaption", says), tag("dl", *bars, class_="bars"))


def _changed(run: FinishedRun) -> Markup:
    said = tables.changes_summary(run)
    if not said:
        return Markup("")
    parts: list[str] = [tag("p", said)]
    if (table := tables.changed(run)) is not None and run.changes is not None:
        caption = f"The worst {len(table.lines)}" if run.changes.changed > len(table.lines) else "All of them"
        parts.append(tag("div", html_table(table, f"{caption}, the worst first"), class_="texts"))
    return _section("Rows whose answer changed", *parts)


def _confusion(run: FinishedRun) -> Markup:
    table = tables.confusion(run)
    if table is None:
        return Markup("")
    says = "Counts of the chosen model on the rows that were scored; in brackets the change from FP32."
    matrix = tag("div", html_table(table, says, shades=tables.shares(run)), class_="matrix")
    return _section("Which labels are taken for which", matrix)


def _again(run: FinishedRun) -> Markup:
    parts: list[str] = []
    command = tables.command(run)
    if command is not None:
        parts.append(tag("pre", tag("code", command), tabindex="0"))
    parts.append(html_table(tables.made_with(run), "Made with"))
    options = tables.options(run)
    if options is not None:
        parts.append(tag("details", tag("summary", "All options"), html_table(options, "Options")))
    if run.notes:
        parts.append(tag("ul", *[tag("li", note) for note in run.notes]))
    return _section("To run it again", *parts)


def _unbroken(text: str) -> str:
    """No line ends between a number and its sign."""
    return text.replace(" ×", "\u00a0×").replace(" %", "\u00a0%").replace(" MB", "\u00a0MB")


def _section(title: str, *parts: str) -> Markup:
    return tag("section", tag("h2", title), *parts)


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded from anywhere, and no script runs but the page's own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
