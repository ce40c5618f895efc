"""How many heads, neurons and layers a share keeps, and the JSON of it."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tersely.errors import UserError
from tersely.models.carve import Shape, shape_for

BASE = Shape((12,) * 12, (3072,) * 12, tuple(range(12)))

HEADS = [
    (12, "2/3", 8), (12, "3/4", 9), (12, "1/2", 6), (12, "1/4", 3), (12, "1", 12), (12, "1/24", 1),
    (16, "2/3", 11), (6, "3/4", 5), (2, "1/4", 1), (4, "3/8", 2),
]  # fmt: skip
NEURONS = [
    (3072, "3/4", 2304), (3072, "2/3", 2048), (3072, "1/3", 1024), (1536, "2/3", 1024), (1000, "1/2", 512),
    (1000, "1", 1000), (96, "1/2", 48), (96, "2/3", 64), (100, "3/4", 72), (100, "1", 100), (100, "1/100", 8),
    (4, "1/2", 4), (512, "1/100", 64), (1152, "3/4", 896), (504, "1/2", 256),
]  # fmt: skip


@pytest.mark.parametrize(("count", "width", "kept"), HEADS)
def test_heads_are_rounded_half_up(count, width, kept):
    assert shape_for(Shape((count,), (64,), (0,)), Fraction(width)).heads == (kept,)


@pytest.mark.parametrize(("count", "width", "kept"), NEURONS)
def test_neurons_go_in_steps_of_eight_or_sixty_four(count, width, kept):
    assert shape_for(Shape((1000,), (count,), (0,)), Fraction(width)).ffn == (kept,)


@pytest.mark.parametrize(
    ("depth", "kept"),
    [
        ("1", tuple(range(12))),
        ("3/4", (0, 1, 3, 4, 6, 7, 8, 10, 11)),
        ("1/2", (0, 2, 4, 7, 9, 11)),
        ("1/6", (0, 11)),
        ("1/12", (0,)),
    ],
)
def test_layers_are_dropped_evenly(depth, kept):
    assert shape_for(BASE, 1, Fraction(depth)).layers == kept


@given(st.integers(1, 48), st.fractions(Fraction(1, 96), 1))
def test_kept_layers_rise_and_hold_the_first_and_the_last(count, depth):
    full = Shape((4,) * count, (64,) * count, tuple(range(count)))
    if depth * count < Fraction(1, 2):
        with pytest.raises(UserError, match="less than half a layer"):
            shape_for(full, 1, depth)
        return
    layers = shape_for(full, 1, depth).layers
    gaps = {second - first for first, second in pairwise(layers)}
    assert layers[0] == 0
    assert len(layers) == 1 or layers[-1] == count - 1
    assert abs(len(layers) - depth * count) <= Fraction(1, 2)
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


def test_layers_of_different_sizes_keep_a_share_of_their_own():
    shape = shape_for(Shape((12, 8, 4), (96, 64, 32), (0, 1, 2)), Fraction(1, 2), Fraction(2, 3))
    assert shape == Shape((6, 2), (48, 16), (0, 2))


@pytest.mark.parametrize("share", [0, Fraction(5, 4), Fraction(-1, 2)])
@pytest.mark.parametrize("name", ["width", "depth"])
def test_share_out_of_range_is_refused(name, share):
    with pytest.raises(UserError, match=rf"A {name} must be a fraction in \(0, 1\]. Got {share}"):
        shape_for(BASE, **{name: share})


def test_less_than_half_a_head_is_refused_with_the_smallest_width():
    with pytest.raises(UserError, match=r"1/25 of 12 heads is less than half a head\. The smallest .* is 1/24"):
        shape_for(BASE, Fraction(1, 25))


def test_json_gives_back_the_shape():
    shape = Shape((8, 4), (64, 32), (0, 5))
    assert Shape.from_json(json.loads(json.dumps(shape.to_json()))) == shape
    assert shape.standing_alone.layers == (0, 1)


GOOD = {"version": 1, "heads": [4], "ffn": [8], "layers": [0]}
BAD = {
    "format version 3; this tersely reads versions 1 to 2. Update tersely": GOOD | {"version": 3},
    "format version None": {"heads": [4]},
    "lacks the entry 'layers'": {"version": 1, "heads": [4], "ffn": [8]},
    "'heads' must be int. Got '4'": GOOD | {"heads": ["4"]},
    "has no entry 'widths'": GOOD | {"widths": []},
    "as many heads as ffn sizes as layers": GOOD | {"heads": [4, 4]},
    "fewer than 0 heads or neurons": GOOD | {"ffn": [-8]},
    "numbers that rise": {"version": 1, "heads": [4, 4], "ffn": [8, 8], "layers": [1, 0]},
}


@pytest.mark.parametrize("message", BAD)
def test_damaged_json_is_refused(message):
    with pytest.raises(UserError, match=message):
        Shape.from_json(BAD[message])
