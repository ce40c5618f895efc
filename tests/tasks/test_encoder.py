"""The encoder gives what transformers' own fast tokenizers give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import FAMILIES, SENTENCES
from tersely.errors import UserError
from tersely.tasks import Encoder

TEXTS = st.one_of(
    st.sampled_from(SENTENCES),
    st.lists(st.sampled_from([*"aestzAB.,'-北京。 ", "the", "fox", "Paris", "\u00e9", "\u200b"]), max_size=40).map(
        "".join
    ),
    st.text(max_size=30),
)


def batched(*texts):
    """Batches of one: given single texts, transformers takes an empty second text for none."""
    return [[text] for text in texts if text is not None]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=30, deadline=None)
@given(first=TEXTS, second=st.one_of(st.none(), TEXTS), max_length=st.integers(5, 40))
def test_texts_equal_transformers_cut_to_any_length(
    encoder_of, transformers_tokenizer, family, first, second, max_length
):
    (ours,) = encoder_of(family).texts([first], None if second is None else [second], max_length)
    theirs = transformers_tokenizer(family)(
        *batched(first, second), truncation=True, max_length=max_length, return_token_type_ids=True
    )
    assert ours.ids == theirs["input_ids"][0]
    assert ours.type_ids == theirs["token_type_ids"][0]
    assert len(ours.ids) <= max_length


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20, deadline=None)
@given(first=TEXTS, second=TEXTS)
def test_frame_around_plain_pieces_equals_transformers(encoder_of, transformers_tokenizer, family, first, second):
    encoder, reference = encoder_of(family), transformers_tokenizer(family)
    tokens = [np.array(encoding.ids, np.int64) for encoding in encoder.plain([first, second])]
    for frame, parts, texts in ((encoder.single, tokens[:1], [first]), (encoder.pair, tokens, [first, second])):
        ids, types = frame.around(*parts)
        expected = reference(*batched(*texts), return_token_type_ids=True)
        assert ids.tolist() == expected["input_ids"][0]
        assert types.tolist() == expected["token_type_ids"][0]
        assert frame.width == len(ids) - sum(map(len, parts))


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"roberta", "modernbert"}))
def test_words_equal_transformers_word_ids(encoder_of, transformers_tokenizer, family):
    words = ["The", "Zanzibar-fox", "", "北京", "saw", "U.S."]
    (ours,) = encoder_of(family).words([words])
    theirs = transformers_tokenizer(family)(words, is_split_into_words=True, add_special_tokens=False)
    assert ours.ids == theirs["input_ids"]
    assert ours.word_ids == theirs.word_ids()


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_words_of_a_list_are_those_of_the_text_to_a_byte_level_tokenizer(encoder_of, transformers_tokenizer, family):
    words = ["The", "Zanzibar-fox", "北京", "saw", "U.S."]
    (ours,) = encoder_of(family).words([words])
    theirs = transformers_tokenizer(family)(" " + " ".join(words), add_special_tokens=False)
    assert ours.ids == theirs["input_ids"]
    assert sorted(set(ours.word_ids)) == list(range(len(words)))


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_length_without_room_for_a_piece_is_refused(encoder_of, family):
    encoder = encoder_of(family)
    for pairs, frame in ((None, encoder.single), (["a fox"], encoder.pair)):
        with pytest.raises(UserError, match=f"'max_seq_length' option is {frame.width}"):
            encoder.texts(["the fox"], pairs, frame.width)
        assert len(encoder.texts(["the fox"], pairs, frame.width + 1)[0].ids) == frame.width + 1


def test_callers_tokenizer_keeps_its_truncation(tokenizer_folder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_folder("bert") / "tokenizer.json"))
    tokenizer.enable_truncation(7)
    encoder = Encoder(tokenizer, 0)
    assert len(encoder.plain([SENTENCES[0]])[0].ids) > 7
    encoder.texts([SENTENCES[0]], None, 5)
    assert tokenizer.truncation["max_length"] == 7


@pytest.mark.parametrize("family", FAMILIES)
def test_json_is_read_back_as_the_same_tokenizer(encoder_of, family, tmp_path):
    encoder = encoder_of(family)
    (tmp_path / "tokenizer.json").write_text(encoder.to_json(), encoding="utf-8")
    again = Encoder.from_file(tmp_path / "tokenizer.json", 0)
    assert again.to_json() == encoder.to_json()
    assert [e.ids for e in again.plain(SENTENCES)] == [e.ids for e in encoder.plain(SENTENCES)]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": 3}'])
def test_damaged_tokenizer_is_refused(content, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match="tokenizer cannot be read"):
        Encoder.from_file(tmp_path / "tokenizer.json", 0)
