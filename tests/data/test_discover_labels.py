"""Labels that a column holds, and those listed beside the data."""

from __future__ import annotations

import pytest

from tersely.data import Rows, discover_labels, labels_beside
from tersely.errors import UserError


def rows(*labels: object) -> Rows:
    return Rows.collect("a.tsv", [(line, {"label": label}) for line, label in enumerate(labels, start=2)])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "9", "100"], ("9", "10", "100")),
        ([2, 10, 1], ("1", "2", "10")),
        (["0.5", "-1", "0"], ("-1", "0", "0.5")),
        (["yes", "no", "10"], ("10", "no", "yes")),
        ([True, False], ("false", "true")),
        ([["O", "B-PER"], [], ["I-PER", "O"]], ("B-PER", "I-PER", "O")),
    ],
)
def test_labels_come_once_and_in_order(labels, expected):
    assert discover_labels(rows(*labels), "label") == expected


def test_row_without_a_label_is_named():
    with pytest.raises(UserError) as caught:
        discover_labels(rows("1", None), "label")
    assert str(caught.value).startswith("a.tsv:3: The row has no label (column 'label').")


def test_labels_beside_keep_the_order_of_their_file(tmp_path):
    data = tmp_path / "train.json"
    assert labels_beside(data) is None
    (tmp_path / "labels.json").write_text('{"label": "b", "label_desc": "x"}\n{"label": "a"}\n{"label": 3}\n')
    listed = labels_beside(data)
    assert listed == ("b", "a", "3")
    assert discover_labels(rows("a"), "label", listed) == listed
    with pytest.raises(UserError, match=r"a\.tsv:3: The label 'c' is not in labels\.json"):
        discover_labels(rows("a", "c"), "label", listed)


def test_list_of_labels_without_label_is_refused(tmp_path):
    (tmp_path / "labels.json").write_text('{"label": "b"}\n{"name": "a"}\n')
    with pytest.raises(UserError, match=r"labels\.json:2: The field 'label' is missing\."):
        labels_beside(tmp_path / "train.json")
