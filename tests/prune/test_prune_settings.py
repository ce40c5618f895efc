"""Options of width pruning: what is taken, how folders are called, what is refused and how."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from torch.nn import CrossEntropyLoss

from tersely.errors import UserError
from tersely.models.carve import Shape
from tersely.prune import PruneSettings
from tersely.prune.widths import parse_shares, target_name

FULL = Shape((12,) * 4, (1536,) * 4, (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ("3/4", ["3/4"]),
        ("0.75 2/3", ["3/4", "2/3"]),
        (["1", ".5"], ["1", "1/2"]),
        (0.1, ["1/10"]),
        ([0.75, Fraction(1, 3), 1], ["3/4", "1/3", "1"]),
        (2 / 3, ["0.6666666666666666"]),
    ],
)
def test_fractions_decimals_and_floats_are_read_exactly(shares, expected):
    assert parse_shares(shares, "width_mult_list") == tuple(Fraction(share) for share in expected)


@pytest.mark.parametrize(
    "shares", ["5/4", "0", "-1/2", "1/0", "nan", "inf", "3 / 4", "__import__('os')", "x", [True], [None]]
)
def test_what_is_no_share_is_refused_with_the_word_itself(shares):
    with pytest.raises(UserError, match=r"The 'width_mult_list' option must hold fractions in \(0, 1\]\. Got '"):
        PruneSettings(width_mult_list=shares)


@pytest.mark.parametrize("shares", ["3/4 0.75", [0.5, "1/2"]])
def test_a_share_given_twice_is_refused(shares):
    with pytest.raises(UserError, match="twice"):
        PruneSettings(depth_mult_list=shares)


@pytest.mark.parametrize("shares", ["", [], " "])
def test_no_share_is_refused(shares):
    with pytest.raises(UserError, match="holds nothing"):
        PruneSettings(width_mult_list=shares)


@pytest.mark.parametrize(
    ("width", "depth", "name"),
    [
        ("3/4", "1", "width_mult_0.75"),
        ("0.75", "1", "width_mult_0.75"),
        ("2/3", "1", "width_mult_2_3"),
        ("1", "1", "width_mult_1"),
        ("1/16", "1/2", "width_mult_0.0625-depth_mult_0.5"),
        ("0.67", "2/3", "width_mult_0.67-depth_mult_2_3"),
    ],
)
def test_names_are_exact(width, depth, name):
    assert target_name(Fraction(width), Fraction(depth)) == name


def test_names_of_different_shares_differ():
    shares = {Fraction(n, d) for d in range(1, 41) for n in range(1, d + 1)}
    assert len({target_name(share) for share in shares}) == len(shares)


def test_widths_and_depths_make_all_pairs_of_shapes():
    targets, notes = PruneSettings(width_mult_list="3/4 1/2", depth_mult_list="1 1/2").targets(FULL)
    assert [target.name for target in targets] == [
        "width_mult_0.75",
        "width_mult_0.5",
        "width_mult_0.75-depth_mult_0.5",
        "width_mult_0.5-depth_mult_0.5",
    ]
    assert [(target.shape.heads[0], len(target.shape.layers)) for target in targets] == [(9, 4), (6, 4), (9, 2), (6, 2)]
    assert notes == ()


def test_equal_shapes_are_one_and_said():
    targets, notes = PruneSettings(width_mult_list="3/4 0.74 0.5").targets(FULL)
    assert [target.name for target in targets] == ["width_mult_0.75", "width_mult_0.5"]
    assert notes == ("width_mult_0.74 has the shape of width_mult_0.75: made once.",)


def test_less_than_half_a_head_is_refused():
    with pytest.raises(UserError, match="less than half a head"):
        PruneSettings(width_mult_list="1/25").targets(FULL)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("distill_hidden", -0.1, "'distill_hidden' option must be a number, 0 or more. Got -0.1"),
        ("distill_logits", "1", "'distill_logits' option must be a number, 0 or more. Got '1'"),
        ("label_loss", float("nan"), "'label_loss' option must be a number, 0 or more. Got nan"),
        ("distill_temperature", 0, "'distill_temperature' option must be a number above 0. Got 0"),
        ("importance", "label", "'importance' option must be labels or teacher. Got 'label'. Did you mean 'labels'"),
        ("importance_rows", 0, "'importance_rows' option must be at least 1. Got 0"),
        ("importance_rows", 1.5, "'importance_rows' option must be a whole number. Got 1.5"),
    ],
)
def test_other_options_are_checked(option, value, message):
    with pytest.raises(UserError) as caught:
        PruneSettings(**{option: value})
    assert message in str(caught.value)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(UserError, match="nothing would be learnt"):
        PruneSettings(distill_hidden=0, distill_logits=0)


def test_a_criterion_that_nothing_asks_for_is_refused():
    with pytest.raises(UserError, match="'criterion' option has no effect where no labels are asked for"):
        PruneSettings(importance="teacher", criterion=CrossEntropyLoss())
    assert PruneSettings(importance="teacher", label_loss=1, criterion=max).criterion is max


def test_settings_are_told_apart_in_json():
    assert PruneSettings().as_json() == PruneSettings(width_mult_list="0.75").as_json()
    changed = [
        {"label_loss": 1.0},
        {"width_mult_list": "1/2"},
        {"teacher": Path("t")},
        {"augment": dict},
        {"criterion": max},
        {"criterion": CrossEntropyLoss()},
        {"reorder": False},
    ]
    shown = {str(PruneSettings(**change).as_json()) for change in ({}, *changed)}
    assert len(shown) == 1 + len(changed)
