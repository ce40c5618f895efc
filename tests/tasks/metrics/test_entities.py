"""Entity metrics against seqeval, on well-formed and malformed tags of every scheme."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from tersely.tasks.metrics import ENTITIES, entities

LABELS = ["PER", "LOC", "ORG-X"]
SCHEMES = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BMES": "BMES"}
Spans = list[tuple[str, int]]

any_letters = st.sampled_from(["O", *(f"{letter}-{label}" for letter in "BIES" for label in LABELS)])
bare_letters = st.sampled_from(["O", "B", "I", "E", "S", "B-PER", "I-PER", "BPER", "I-"])
spans = st.lists(st.tuples(st.sampled_from([*LABELS, ""]), st.integers(1, 4)), max_size=8)


def write(spans: Spans, scheme: str) -> list[str]:
    """Tags of spans, label and length each; those without label are outside."""
    tags: list[str] = []
    for index, (label, length) in enumerate(spans):
        inside = "M" if scheme == "BMES" else "I"
        if not label:
            tags += ["O"] * length
        elif scheme == "IOB2":
            tags += [f"B-{label}"] + [f"I-{label}"] * (length - 1)
        elif scheme == "IOB1":
            touching = index > 0 and spans[index - 1][0] == label
            tags += [f"B-{label}" if touching else f"I-{label}"] + [f"I-{label}"] * (length - 1)
        elif length == 1:
            tags.append(f"S-{label}")
        else:
            tags += [f"B-{label}"] + [f"{inside}-{label}"] * (length - 2) + [f"E-{label}"]
    return tags


def as_bioes(tags: list[str]) -> list[str]:
    return ["I" + tag[1:] if tag.startswith("M") else tag for tag in tags]


@settings(max_examples=300, deadline=None)
@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
@given(st.one_of(st.lists(any_letters, max_size=12), st.lists(bare_letters, max_size=12)))
def test_entities_of_any_sequence_equal_seqeval(tags: list[str]) -> None:
    assert entities(tags) == [(label, start, end + 1) for label, start, end in get_entities(tags)]


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(deadline=None)
@given(spans=spans)
def test_entities_of_well_formed_tags_are_what_was_written(scheme: str, spans: Spans) -> None:
    expected, place = [], 0
    for label, length in spans:
        if label:
            expected.append((label, place, place + length))
        place += length
    assert entities(write(spans, scheme)) == expected


@pytest.mark.filterwarnings("ignore::seqeval.metrics.v1.UndefinedMetricWarning", "ignore::UserWarning")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_entity_metrics_of_random_tags_equal_seqeval(scheme: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    vocabulary = ["O", *(f"{letter}-{label}" for letter in SCHEMES[scheme] for label in LABELS)]
    golds = [[str(tag) for tag in random.choice(vocabulary, size=random.integers(1, 15))] for _ in range(60)]
    answers = [[tag if random.random() < 0.7 else str(random.choice(vocabulary)) for tag in row] for row in golds]
    references = {"f1": f1_score, "precision": precision_score, "recall": recall_score, "accuracy": accuracy_score}
    for name, reference in references.items():
        expected = reference([as_bioes(row) for row in golds], [as_bioes(row) for row in answers])
        assert ENTITIES[name].score(golds, answers) == pytest.approx(expected, abs=1e-12)


def test_entity_metrics_without_entities_are_zero() -> None:
    for name in ("f1", "precision", "recall"):
        assert ENTITIES[name].score([["O", "O"]], [["O", "O"]]) == 0.0


def test_entity_at_a_row_end_does_not_run_into_the_next_row() -> None:
    statistics = ENTITIES["f1"].rows([["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]])
    assert statistics.tolist() == [[1, 1, 1], [1, 1, 1]]
