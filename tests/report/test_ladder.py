"""What a search for speed leaves in the report: the wish in the plot, the ladder, the shape and why not the others."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from report_page import Node, along, check_reports, ticks
from searched import FULL, SHAPES, searched
from tersely.report import FinishedRun, draw_reports, read_run, write_report
from tersely.report.answer import nothing_pruned, rivals, stamps
from tersely.report.ladder import ladder
from tersely.report.shape import layers_left
from tersely.report.write import run_of


def drawn(folder: Path, content: dict[str, Any]) -> Node:
    """The page, of which every model's place is compared with its numbers."""
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    write_report(folder)
    return check_reports(folder)


def drawings(page: Node) -> list[Node]:
    return [drawing for drawing in page.all("svg") if drawing.attributes.get("role") == "group"]


def titles(page: Node) -> list[str]:
    return [heading.text for heading in page.all("h2")]


@pytest.mark.parametrize("targets", [[4], [4.0, 6.0], [9.5]])
def test_wish_stands_where_the_axes_say(targets: list[float], tmp_path: Path) -> None:
    content = searched(target_speedup=targets, max_drop=0.01)
    for drawing in drawings(drawn(tmp_path, content)):
        speeds, values = ticks(drawing)
        (wish,) = drawing.all("g", wanted="wish")
        lines = [{name: float(value) for name, value in line.attributes.items()} for line in wish.all("line")]
        upright, level = ([line for line in lines if line[a] == line[b]] for a, b in (("x1", "x2"), ("y1", "y2")))
        assert [line["x1"] for line in upright] == pytest.approx([along(speeds, wished) for wished in targets], abs=0.5)
        (limit,) = level
        assert limit["y1"] == pytest.approx(along(values, 100 * (content["fp32"]["score"] - 0.01)), abs=0.5)
        (field,) = wish.all("rect")
        assert float(field.attributes["x"]) == upright[-1]["x1"]
        edge = float(field.attributes["y"]) + float(field.attributes["height"])
        assert edge == pytest.approx(limit["y1"], abs=0.2)
        said = [text.text for text in wish.all("text")]
        assert "1.00 points below FP32" in said
        assert f"wish: {targets[0]:g} ×" in said


def test_words_of_the_wish_do_not_lie_on_each_other(tmp_path: Path) -> None:
    page = drawn(tmp_path, searched(target_speedup=[3, 3.1, 3.2, 6]))
    for drawing in drawings(page):
        texts = next(drawing.all("g", wanted="wish")).all("text")
        places = [float(text.attributes["x"]) for text in texts if text.text.startswith("wish")]
        assert len(places) > 1
        assert all(right - left > 60 for left, right in pairwise(places))


def test_limit_that_would_squeeze_the_models_is_left_out(tmp_path: Path) -> None:
    content = searched(max_drop=0.6)
    content["max_drop"] = 0.6
    for drawing in drawings(drawn(tmp_path, content)):
        assert not list(next(drawing.all("g", wanted="wish")).all("line"))


def test_limit_of_an_error_lies_above_it(tmp_path: Path) -> None:
    """Less is better: the axis shows errors upside down, the limit is a larger one."""
    content = searched() | {"metric": "mse", "fraction": False, "greater_is_better": False, "max_drop": 0.02}
    for candidate in content["candidates"]:
        candidate["score"] = content["fp32"]["score"] + candidate["drop"]
    for drawing in drawings(drawn(tmp_path, content)):
        _, values = ticks(drawing)
        (limit,) = next(drawing.all("g", wanted="wish")).all("line")
        expected = along(values, content["fp32"]["score"] + 0.02)
        assert float(limit.attributes["y1"]) == pytest.approx(expected, abs=0.5)


def test_line_of_the_limit_says_who_set_it(tmp_path: Path) -> None:
    assert "auto's limit" in next(drawn(tmp_path, searched()).all("figcaption")).text
    caption = next(drawn(tmp_path, searched(max_drop=0.01)).all("figcaption")).text
    assert "auto's limit" not in caption


def test_ladder_says_each_rung_in_order_with_its_minutes(tmp_path: Path) -> None:
    content = searched()
    page = drawn(tmp_path, content)
    (table,) = next(page.all("div", wanted="ladder")).all("table")
    lines = [[cell for cell in line.all("*") if cell.name in ("th", "td")] for line in table.all("tr")][1:]
    rungs = content["rungs"]
    assert len(lines) == len(rungs) + len(content["not_tried"])
    by_name = {candidate["name"]: candidate for candidate in content["candidates"]}
    for cells, rung in zip(lines, rungs, strict=False):
        title, speed, drop, size, minutes = (cell.text.replace("−", "-") for cell in cells)
        chosen = content["best"] in rung["names"]
        shown = min((by_name[name] for name in rung["names"]), key=lambda candidate: candidate["drop"])
        assert title.startswith(f"{rung['title']}{', chosen' if chosen else ''}{shown['name']}")
        assert speed == f"{shown['speedup']['ratio']:.2f}"
        low, high = (f"{100 * edge:.2f}" for edge in shown["drop_interval"])
        assert drop == f"{100 * shown['drop']:.2f}{low} to {high}"
        assert size == f"{shown['size'] / 1e6:.1f}"
        assert minutes == f"{rung['minutes']:.1f}"
    assert lines[-1][0].text == "qat+embeddingsnot tried: no time left"


def test_rung_of_several_strategies_has_a_line_for_each_model() -> None:
    content = searched(target_speedup=[3.9, 5.3, 6])
    names = [candidate["name"] for candidate in content["candidates"]]
    content |= {"rungs": [{"title": "all at once", "names": names, "minutes": 9.0}], "not_tried": []}
    table = ladder(run_of(content))
    assert table is not None
    first = [cell[0] for cell, *_ in (line.cells for line in table.lines)]
    assert first == [
        "ptq+embeddings", "prune+ptq+embeddings at 3.9 ×", "prune+ptq+embeddings at 5.3 ×",
        "prune+ptq+embeddings at 6 ×", "prune+dynabert+ptq+embeddings at 5.3 ×, chosen",
    ]  # fmt: skip
    assert [line.cells[-1] for line in table.lines] == ["9.0", "", "", "", ""]


def test_rung_that_gave_nothing_new_and_a_run_without_labels_have_their_lines() -> None:
    content = searched()
    content["rungs"].append({"title": "more rows, fewer layers in INT8", "names": ["gone"], "minutes": 0.01})
    content["fp32"]["score"] = None
    for candidate in content["candidates"]:
        candidate |= {"score": None, "drop": None, "drop_interval": None}
    content["max_drop"] = None
    table = ladder(run_of(content))
    assert table is not None
    assert {len(line.cells) for line in table.lines} == {len(table.columns)}
    assert table.lines[-2].cells[0] == ("more rows, fewer layers in INT8", "nothing that was not there already")
    assert table.lines[-2].cells[-1] == "< 0.1"
    assert table.lines[0].cells[3] == "99.20"  # same answers, of the one that keeps most
    assert draw_reports(content)


def test_shape_is_drawn_as_it_is(tmp_path: Path) -> None:
    page = drawn(tmp_path, searched())
    (figure,) = page.all("figure", wanted="shape")
    lines = list(next(figure.all("tbody")).all("tr"))
    kept = list(zip(SHAPES[5.3]["heads"], SHAPES[5.3]["ffn"], strict=True))
    assert len(lines) == len(kept)
    for number, (line, both) in enumerate(zip(lines, kept, strict=True)):
        assert next(line.all("th")).text == str(number)
        for cell, left, full, what in zip(line.all("td"), both, (12, 1536), ("heads", "neurons"), strict=True):
            frame, bar = cell.all("rect")
            share = float(bar.attributes["width"]) / float(frame.attributes["width"])
            assert share == pytest.approx(left / full, abs=0.001)
            (picture,) = cell.all("svg")
            said = f"layer {number}: {left or 'none'} of {full:,} {what}"
            assert picture.attributes["aria-label"] == said == next(picture.all("title")).text
            assert picture.attributes["role"] == "img"
            assert (cell.attributes.get("class") == "empty") == (left == 0)
    assert (
        "19 of 72 heads and 2,304 of 9,216 neurons are left. 1 layer has no attention. 1 layer has no FFN." in page.text
    )
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| 3 | none of 12 | 384 of 1,536 |" in markdown


def test_layers_that_dynabert_left_out_are_seen(tmp_path: Path) -> None:
    content = searched()
    shape = {"version": 1, "heads": [8] * 3, "ffn": [1024] * 3, "layers": [0, 3, 5]}
    content["pruned"][-1] = {"name": "speedup_5.3-dynabert", "width": "2/3", "depth": "1/2", "shape": shape}
    drawn(tmp_path, content)
    left = layers_left(read_run(tmp_path))
    assert [layer.heads for layer in left] == [(8, 12), (0, 12), (0, 12), (8, 12), (0, 12), (8, 12)]
    assert [layer.layer for layer in left] == FULL["layers"]
    assert "width 2/3, depth 1/2" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("lost", ["target", "rungs", "not_tried", "pruned", "latency_tables", "settings", "max_drop"])
def test_what_an_older_run_did_not_write_is_absent(lost: str, tmp_path: Path) -> None:
    content = searched(target_speedup=[4])
    del content[lost]
    page = drawn(tmp_path, content)
    assert ("What was tried" in titles(page)) == (lost != "rungs")
    assert ("Shape of the chosen model" in titles(page)) == (lost != "pruned")


def test_without_the_full_shape_and_the_speed_at_the_target_the_rest_is_drawn(tmp_path: Path) -> None:
    content = searched()
    del content["fp32"]["shape"]
    for candidate in content["candidates"]:
        del candidate["speedup"]
    page = drawn(tmp_path, content)
    assert "Shape of the chosen model" not in titles(page)
    assert "at target" not in next(page.all("table", wanted="sortable")).text


def run(**changes: Any) -> FinishedRun:
    return run_of(searched() | changes)


def test_every_other_candidate_has_its_reason_in_the_table(tmp_path: Path) -> None:
    content = searched()
    page = drawn(tmp_path, content)
    (table,) = page.all("table", wanted="sortable")
    lines = {row.attributes["data-name"]: row for row in table.all("tr") if "data-name" in row.attributes}
    for candidate in content["candidates"]:
        cells = [cell.text for cell in lines[candidate["name"]].all("td", wanted="words")]
        assert cells == [candidate["why_not"] or ""]
        assert bool(cells[0]) == (candidate["name"] != content["best"])


def test_nearest_of_the_faster_ones_is_answered_for() -> None:
    (said,) = rivals(run())
    assert said.startswith("Faster, not chosen: speedup_6-mse128-embeddings (5.94 ×, drop 3.40 (95 % 1.40 to 5.40))")
    assert said.endswith(": drop above --max_drop.")


def test_pruned_one_is_answered_for_where_it_is_not_faster() -> None:
    content = searched() | {"best": "min_max128-embeddings"}
    for candidate in content["candidates"]:
        candidate["speedup"] = {"ratio": 2.9}
        candidate["why_not"] = "larger by 1 MB" if candidate["name"] != content["best"] else None
    (said,) = rivals(run_of(content))
    assert said.startswith("Pruned, not chosen: speedup_3.9-mse128-embeddings (2.90 ×, drop 0.40")


def test_search_that_pruned_nothing_says_why() -> None:
    plain = {"rungs": searched()["rungs"][:1]}
    assert nothing_pruned(run()) == []
    assert nothing_pruned(run(**plain, not_tried=["prune+ptq+embeddings at 3.9 ×"])) == []
    (measured,) = nothing_pruned(run(**plain, not_tried=[], latency_tables=[{"fp32": 1.0}]))
    assert "measured times of its layers" in measured
    (graph,) = nothing_pruned(run(**plain, not_tried=[]))
    assert "not its graph alone" in graph
    assert nothing_pruned(run(**plain, settings={"options": {"strategy": ["ptq"]}})) == []


def test_wish_that_was_missed_is_said_first() -> None:
    content = searched(target_speedup=[7])
    content["target"]["missed"] = {"speedup_7-mse128": [7.0, 5.94]}
    assert stamps(run_of(content))[0] == "Not met: speedup_7-mse128 is 5.94 × as fast, 7 × was asked for."
    content["settings"]["options"]["target_speedup"] = None  # a search misses what nobody asked for
    assert not any("asked for" in stamp for stamp in stamps(run_of(content)))
