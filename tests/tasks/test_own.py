"""The task of models whose meaning only their owner knows: numbers in, numbers out."""

from __future__ import annotations

import numpy as np
import pytest

from tersely import UserError
from tersely.data.rows import Rows
from tersely.measure.check import chooser
from tersely.tasks import Columns, Own, from_json, to_json
from tersely.tasks.encoder import NoTokenizer

LABELS = Own("Mine", ("input_ids",), ("logits",))
POINTERS = Own("Mine", ("input_ids", "kind"), ("start", "end"), labels_last=False, threshold=0.5)


def test_it_is_written_and_read_again():
    assert from_json(to_json(POINTERS)) == POINTERS


def test_rows_of_numbers_become_features_and_outputs_keep_their_names():
    encoder = NoTokenizer(0, 9)
    examples = POINTERS.examples([{"input_ids": [4, 5], "kind": 3, "more": 1}, {"input_ids": [6], "kind": 2}])
    features = POINTERS.features(examples, encoder)
    assert [feature.input_ids.tolist() for feature in features] == [[4, 5], [6]]
    assert [int(feature.more["kind"]) for feature in features] == [3, 2]
    answers = POINTERS.decode(examples, features, [np.array([[0.5, 1], [2, 3]]), np.array([[4.0, 5]])])
    assert answers[0].as_json() == {"start": [0.5, 2.0], "end": [1.0, 3.0]}


def test_agreement_counts_labels_or_sides_of_the_threshold():
    first, second = ([np.array([[0.6, 0.4]])], [np.array([[0.9, 0.6]])])
    said = [POINTERS.decode([None], [None], logits) for logits in (first, second)]
    assert POINTERS.agreement(*said).tolist() == [[1.0, 2.0]]
    said = [LABELS.decode([None], [None], logits) for logits in (first, second)]
    assert LABELS.agreement(*said).tolist() == [[1.0, 1.0]]


def test_what_counts_as_an_answer_in_check():
    answers, ahead = chooser(POINTERS)(np.array([[0.6, 0.1]]))
    assert answers.tolist() == [True, False]
    assert ahead == pytest.approx([0.1, 0.4])


def test_texts_files_and_its_owners_metric_are_refused():
    with pytest.raises(UserError, match="Input 0 must be a mapping with 'input_ids'"):
        LABELS.examples(["a text"])
    with pytest.raises(UserError, match="rows of a file mean nothing to it"):
        LABELS.read(Rows("a.tsv", ("text",), (), ()), Columns(), labelled=False)
    with pytest.raises(UserError, match="is not in the artifact"):
        LABELS.statistics("custom_evaluate", [], [])
    with pytest.raises(UserError, match="without a tokenizer"):
        NoTokenizer(0, 9).texts(["a text"], None, 8)
