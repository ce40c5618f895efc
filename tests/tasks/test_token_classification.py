"""Tags of words: alignment, windows, entities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import FAMILIES, SENTENCES
from tersely.data.rows import Rows
from tersely.errors import UserError
from tersely.tasks import Columns, TokenClassification, from_json, to_json
from tersely.tasks.token_classification import windows, word_spans

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TASK = TokenClassification(LABELS, max_seq_length=64)
SHORT = TokenClassification(LABELS, max_seq_length=12)
WORDS = st.lists(
    st.sampled_from(["Paris", "the", "fox", "zzzz", "北", "京", ".", "\u200b", "", "Zanzibar"]), max_size=60
)


def rows(*records):
    return Rows.collect("tags.txt", enumerate(records, start=1))


def read(*records, labelled=True, task=TASK, **columns):
    return task.read(rows(*records), Columns(**columns), labelled)


def logits_for(features, tag_of):
    """Logits that tag word w of a sentence with label number tag_of(example, w)."""
    result = []
    for feature in features:
        found = np.random.default_rng(0).normal(size=(len(feature), len(LABELS))).astype(np.float32)
        for word, place in zip(feature.alignment.words, feature.alignment.places, strict=True):
            found[place] = 0.0
            found[place, tag_of(feature.example, int(word))] = 5.0
        result.append(found)
    return result


def test_words_and_tags_are_read():
    (example,) = read({"words": ["Ada", "in", "Paris"], "tags": ["B-PER", "O", "B-LOC"]})
    assert (example.words, example.gold) == (("Ada", "in", "Paris"), ("B-PER", "O", "B-LOC"))


def test_tags_given_as_positions_are_read():
    (example,) = read({"tokens": ["Ada", "in", "Paris"], "ner_tags": [1, 0, 3]})
    assert example.gold == ("B-PER", "O", "B-LOC")


@pytest.mark.parametrize(
    ("record", "message", "where"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, "one tag for each of the 2 words. Got 1", "tags.txt:1"),
        ({"words": ["a"], "tags": "O"}, "one tag for each of the 1 words. Got str", "tags.txt:1"),
        ({"words": ["a"], "tags": ["B-ORG"]}, "'B-ORG' is not one of the model's 5: O, B-PER", "tags.txt:1"),
        ({"words": ["a"], "tags": [9]}, "'9' is not one of the model's 5", "tags.txt:1"),
        ({"words": ["a"], "tags": [-1]}, "'-1' is not one of the model's 5", "tags.txt:1"),
        ({"words": "a b", "tags": ["O"]}, "must be a list of texts. Got str", "tags.txt:1"),
        ({"words": ["a", None], "tags": ["O", "O"]}, "must be a list of texts", "tags.txt:1"),
        ({"words": ["a"], "tags": None}, "words but no tags", "tags.txt:1"),
        ({"words": ["a"]}, "words but no tags. Columns here: words", "tags.txt"),
        ({"sent": ["a"], "tags": ["O"]}, "no column of words. Columns here: sent, tags", "tags.txt"),
    ],
)
def test_bad_rows_are_named(record, message, where):
    with pytest.raises(UserError, match=message) as caught:
        read(record)
    assert caught.value.where == where


def test_named_columns_win():
    (example,) = read({"words": ["x"], "w": ["Ada"], "tags": ["O"], "t": ["B-PER"]}, words="w", tags="t")
    assert (example.words, example.gold) == (("Ada",), ("B-PER",))


# transformers' own takes no word lists with the other two (`add_prefix_space`); see test_encoder for them
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"roberta", "modernbert"}))
def test_places_equal_transformers_first_pieces(encoder_of, transformers_tokenizer, family):
    words = ["The", "Zanzibar-fox", "", "北京", "saw", "U.S."]
    (feature,) = TASK.features(TASK.examples([words]), encoder_of(family))
    reference = transformers_tokenizer(family)(words, is_split_into_words=True)
    first = {}
    for place, word in enumerate(reference.word_ids()):
        if word is not None:
            first.setdefault(word, place)
    assert feature.input_ids.tolist() == reference["input_ids"]
    assert dict(zip(feature.alignment.words.tolist(), feature.alignment.places.tolist(), strict=True)) == first


@given(sizes=st.lists(st.integers(1, 12), max_size=60), room=st.integers(1, 30))
def test_windows_fit_and_answer_for_every_word_once(sizes, room):
    sizes = np.minimum(np.array(sizes, np.int64), room)
    cut = windows(sizes, room)
    answered = []
    for first, last, answers_from, answers_to in cut:
        assert sizes[first:last].sum() <= room
        assert first <= answers_from <= answers_to <= last
        answered += range(answers_from, answers_to)
    assert answered == list(range(len(sizes)))
    assert len({window[0] for window in cut}) == len(cut)


@given(sizes=st.lists(st.integers(1, 4), min_size=40, max_size=80))
def test_words_inside_have_context_on_both_sides(sizes):
    """A quarter of overlap, halved: no word away from the sentence's ends answers at its window's edge."""
    sizes, room = np.array(sizes, np.int64), 32
    for first, last, answers_from, answers_to in windows(sizes, room):
        if first > 0:
            assert answers_from - first >= 1
        if last < len(sizes):
            assert last - answers_to >= 1


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@settings(max_examples=40, deadline=None)
@given(words=WORDS)
def test_windows_of_long_sentences_label_every_word_with_pieces_once(encoder_of, family, words):
    encoder = encoder_of(family)
    (example,) = SHORT.examples([words])
    features = SHORT.features([example], encoder)
    (encoding,) = encoder.words([words])
    owners = list(encoding.word_ids)
    answered = [int(word) for feature in features for word in feature.alignment.words]
    assert answered == sorted(set(owners))
    for feature in features:
        assert len(feature) <= 12
        lead = len(encoder.single.ids[0])
        for word, place in zip(feature.alignment.words, feature.alignment.places, strict=True):
            first = owners.index(int(word))
            size = min(owners.count(int(word)), 12 - encoder.single.width)
            # The word stands there whole, or cut to the room.
            assert feature.input_ids[place : place + size].tolist() == encoding.ids[first : first + size]
            assert lead <= place < len(feature)


@settings(max_examples=40, deadline=None)
@given(words=WORDS, seed=st.integers(0, 9))
def test_decode_gives_each_word_the_tag_of_its_own_piece(encoder_of, words, seed):
    tags = np.random.default_rng(seed).integers(0, len(LABELS), len(words))
    examples = SHORT.examples([words])
    features = SHORT.features(examples, encoder_of("bert"))
    (answer,) = SHORT.decode(examples, features, logits_for(features, lambda _, word: tags[word]))
    (encoding,) = encoder_of("bert").words([words])
    spoken = set(encoding.word_ids)
    assert answer.words == tuple(words)
    assert answer.tags == tuple(LABELS[tag] if word in spoken else "O" for word, tag in enumerate(tags))
    for entity in answer.entities:
        assert entity.text == examples[0].text[entity.start : entity.end]
        gap = "" if all(len(word) == 1 for word in words) else " "
        assert entity.text == gap.join(words[entity.first : entity.last])


@settings(max_examples=40, deadline=None)
@given(words=WORDS.filter(bool), seed=st.integers(0, 9))
def test_targets_cover_every_word_with_pieces_once(encoder_of, words, seed):
    tags = [LABELS[i] for i in np.random.default_rng(seed).integers(0, len(LABELS), len(words))]
    (example,) = read({"words": words, "tags": tags})
    features = SHORT.features([example], encoder_of("bert"))
    targets = [SHORT.targets(example, feature)["labels"] for feature in features]
    assert all(len(target) == len(feature) for target, feature in zip(targets, features, strict=True))
    (encoding,) = encoder_of("bert").words([words])
    expected = [tags[word] for word in sorted(set(encoding.word_ids))]
    assert [LABELS[label] for target in targets for label in target if label != -100] == expected


def test_word_longer_than_the_room_is_cut_and_labelled(encoder_of):
    words = ["Paris", "zanzibar" * 10, "the"]
    examples = SHORT.examples([words])
    features = SHORT.features(examples, encoder_of("bert"))
    (answer,) = SHORT.decode(examples, features, logits_for(features, lambda _, word: [3, 1, 0][word]))
    assert answer.tags == ("B-LOC", "B-PER", "O")


def test_length_without_room_is_refused(encoder_of):
    task = TokenClassification(LABELS, max_seq_length=2)
    with pytest.raises(UserError, match="'max_seq_length' option is 2, of which special tokens take 2"):
        task.features(task.examples(["The fox"]), encoder_of("bert"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", [*SENTENCES, "", "  ", " Ada  Lovelace\tof London. ", "\u200b", "Zoë Šime, 12%"])
def test_entities_of_texts_stand_at_their_offsets(encoder_of, family, text):
    examples = TASK.examples([text])
    features = TASK.features(examples, encoder_of(family))
    (answer,) = TASK.decode(examples, features, logits_for(features, lambda _, word: [1, 2, 0, 3][word % 4]))
    assert "".join(answer.words) == "".join(text.split())
    for entity in answer.entities:
        assert entity.text == text[entity.start : entity.end]
        assert entity.text.strip() == entity.text != ""
    people = [entity for entity in answer.entities if entity.label == "PER"]
    spoken = {int(word) for feature in features for word in feature.alignment.words}
    assert len(people) == len({word // 4 for word in spoken if word % 4 in (0, 1)})


@given(st.text(alphabet="ab .,'-+$é北京。，\u3000\n\u0301", max_size=40))
def test_words_of_a_text_equal_berts_basic_split(text):
    """Against `tokenizers`' own BertNormalizer and BertPreTokenizer."""
    from tokenizers import normalizers, pre_tokenizers

    normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    expected = [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))]
    assert [text[start:end] for start, end in word_spans(text)] == expected


def test_tags_without_a_scheme_name_entities_by_the_whole_tag(encoder_of):
    task = TokenClassification(("LABEL_0", "LABEL_1", "NOUN", "X", "O"), max_seq_length=64)
    examples = task.examples([["the", "fox", "runs"]])
    features = task.features(examples, encoder_of("bert"))
    (answer,) = task.decode(examples, features, logits_for(features, lambda _, word: [1, 2, 4][word]))
    assert [(entity.label, entity.text) for entity in answer.entities] == [("LABEL_1", "the"), ("NOUN", "fox")]


def test_scores_equal_softmax_of_the_first_piece(encoder_of):
    examples = TASK.examples([["Ada", "of", "Paris"]])
    (feature,) = TASK.features(examples, encoder_of("bert"))
    logits = np.random.default_rng(1).normal(size=(len(feature), len(LABELS))).astype(np.float32)
    (answer,) = TASK.decode(examples, [feature], [logits])
    first = logits[feature.alignment.places].astype(np.float64)
    chances = np.exp(first) / np.exp(first).sum(axis=1, keepdims=True)
    assert answer.scores == pytest.approx(chances.max(axis=1))
    assert answer.tags == tuple(LABELS[i] for i in first.argmax(axis=1))
    assert answer.entities
    for entity in answer.entities:
        assert entity.score == pytest.approx(np.mean(answer.scores[entity.first : entity.last]))


def test_statistics_and_agreement_count_entities_and_tags(encoder_of):
    golds = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-PER"]]
    examples = read(*({"words": ["a", "b", "c"], "tags": tags} for tags in golds))
    features = TASK.features(examples, encoder_of("bert"))
    numbers = [[LABELS.index(tag) for tag in tags] for tags in golds]
    right = TASK.decode(examples, features, logits_for(features, lambda e, w: numbers[e][w]))
    wrong = TASK.decode(examples, features, logits_for(features, lambda e, w: numbers[e][w] if w else 0))
    metric = TASK.metrics["f1"]
    assert metric.value(TASK.statistics("f1", examples, right).sum(axis=0)) == 1.0
    # Left: I-PER alone (another entity than the gold), nothing, B-PER: one hit of two answered and three gold.
    assert metric.value(TASK.statistics("f1", examples, wrong).sum(axis=0)) == pytest.approx(2 * 1 / (2 + 3))
    assert TASK.agreement(right, wrong).tolist() == [[2, 3], [2, 3]]


@pytest.mark.parametrize("item", [7, None, ["a", 3], {"text": 5}, {}])
def test_bad_input_is_named_by_its_number(item):
    with pytest.raises(UserError, match="Input 1 must be a text or a list of words"):
        TASK.examples(["fine", item])


def test_settings_survive_json():
    assert from_json(to_json(SHORT)) == SHORT
