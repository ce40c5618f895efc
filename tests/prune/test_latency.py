"""Latency tables: what a shape costs by them, and files that hold them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tersely.errors import UserError
from tersely.models.carve import Shape
from tersely.prune.latency import Cost, LatencyTable, read_table

FULL = Shape((4, 4, 4), (64, 64, 64), (0, 1, 2))


def table(**fields):
    heads, neurons = Cost((0, 1, 4), (0.0, 2.0, 5.0)), Cost((0, 8, 64), (0.0, 1.0, 8.0))
    last = {"last_heads": Cost((0, 4), (0.0, 1.0)), "last_neurons": Cost((0, 64), (0.0, 2.0))}
    about = {"precision": "fp32", "heads": [4, 4, 4]}
    return LatencyTable(
        **{"fp32": 60.0, "full": 40.0, "heads": heads, "neurons": neurons, **last, "about": about, **fields}
    )


def test_a_shape_takes_the_full_time_less_what_its_layers_save():
    shape = Shape((0, 2, 4), (64, 8, 0), FULL.layers)
    saved = (5.0 - 0.0) + (5.0 - np.interp(2, [0, 1, 4], [0, 2, 5])) + 0 + 0 + (8.0 - 1.0) + 2.0
    assert table().seconds(shape, FULL) == pytest.approx(40.0 - saved)
    assert table().speedup(shape, FULL) == pytest.approx(60.0 / (40.0 - saved))
    assert table().seconds(FULL, FULL) == 40.0


def test_layers_that_take_more_than_the_whole_model_are_taken_in_proportion():
    disturbed, none = table(full=25.0), Shape((0, 0, 0), (0, 0, 0), FULL.layers)
    assert disturbed.seconds(none, FULL) == pytest.approx(-4.0)
    mended = disturbed.within_full(FULL)
    assert mended.seconds(none, FULL) == pytest.approx(0.02 * 25.0)
    assert mended.cost("heads", 0, 3).at(4) / mended.cost("neurons", 0, 3).at(64) == pytest.approx(5.0 / 8.0)
    assert table().within_full(FULL).seconds(none, FULL) == pytest.approx(table().seconds(none, FULL))


def test_a_graph_that_was_timed_is_remembered_by_its_sizes():
    shape, other = Shape((1, 2, 3), (8, 16, 24), FULL.layers), Shape((1, 2, 3), (8, 16, 32), FULL.layers)
    known = table().with_graph(shape, 2.5)
    assert (known.seen(shape), known.seen(other), table().seen(shape)) == (2.5, None, None)


def test_a_table_comes_back_from_json_and_from_a_result(tmp_path):
    fp32 = table().with_graph(FULL, 1.5)
    int8 = table(about={"precision": "ptq"}, full=20.0)
    alone, result = tmp_path / "table.json", tmp_path / "result.json"
    alone.write_text(json.dumps(fp32.to_json()))
    result.write_text(json.dumps({"latency_tables": [fp32.to_json(), int8.to_json()]}))
    assert read_table(alone, "fp32") == fp32 == read_table(result, "fp32")
    assert read_table(result, "ptq") == int8


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("[]", "format version None"),
        ('{"version": 2}', "format version 2"),
        ('{"version": 1, "fp32": 1.0}', "lacks the entry"),
        (json.dumps({**table().to_json(), "fp32": "fast"}), "'fp32' must be float"),
        (json.dumps({**table().to_json(), "heads": {"units": [0, 4, 2], "seconds": [0, 1, 2]}}), "which rise"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(content, says, tmp_path):
    place = tmp_path / "table.json"
    place.write_text(content)
    with pytest.raises(UserError, match=says):
        read_table(place, "fp32")


def test_costs_that_are_scaled_leave_the_whole_model_as_it_is():
    shape = Shape((0, 2, 4), (64, 8, 0), FULL.layers)
    saved = table().full - table().seconds(shape, FULL)
    assert table().scaled(1.1).seconds(FULL, FULL) == 40.0
    assert table().scaled(1.1).seconds(shape, FULL) == pytest.approx(40.0 - 1.1 * saved)


def test_costs_rise_with_units():
    with pytest.raises(UserError, match="rise"):
        Cost((0, 4, 4), (0.0, 1.0, 2.0))
    assert replace(table().heads).at(2) == pytest.approx(3.0)
