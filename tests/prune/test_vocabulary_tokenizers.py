"""Whatever is cut: a text whose old tokens are all kept is tokenized as before, unknown stretches included."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from models import SENTENCES
from tersely.errors import UserError
from tersely.prune.smaller_tokenizer import named_tokens, rewrite, vocabulary_of

LETTERS = "abc"
WORDS = ["".join(word) for length in range(1, 6) for word in itertools.product(LETTERS + "z", repeat=length)]
"""All words of up to five letters; the vocabularies below know no z."""
TOKENS = ["".join(word) for length in range(1, 4) for word in itertools.product(LETTERS, repeat=length)]
some = st.lists(st.sampled_from(TOKENS), unique=True, max_size=12)
chance = st.integers(0, 1 << 30).map(random.Random)


def closed_part(content: dict[str, Any], vocabulary: Any, size: int, draw: random.Random) -> list[int]:
    """Some tokens with all that must stay with them; only of BPE does that include companions."""
    share = draw.random()
    drawn = {*(n for n in range(size) if draw.random() < share), *vocabulary.always, *named_tokens(content)}
    companions = content["model"]["type"] == "BPE" or draw.random() < 0.5
    return sorted(drawn.union(*(vocabulary.companions(number) for number in drawn if companions)))


def count_equal(tokenizer: Tokenizer, draw: random.Random, texts: list[str]) -> int:
    """Cut at random, compare wherever every old token is kept; gives how many texts that were."""
    content = json.loads(tokenizer.to_str())
    vocabulary = vocabulary_of(content)
    kept = closed_part(content, vocabulary, tokenizer.get_vocab_size(), draw)
    vocabulary.check(frozenset(kept))
    numbers = {old: new for new, old in enumerate(kept)}
    smaller = Tokenizer.from_str(json.dumps(rewrite(content, vocabulary, numbers)))
    compared = 0
    for text in texts:
        before = tokenizer.encode(text, add_special_tokens=False)
        if all(number in numbers for number in before.ids):
            after = smaller.encode(text, add_special_tokens=False)
            assert [numbers[number] for number in before.ids] == after.ids, (text, before.tokens, after.tokens)
            assert before.offsets == after.offsets
            compared += 1
    return compared


def wordpiece(*tokens: str) -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


# Most draws are vocabularies that the product refuses: `assume` leaves them out.
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(some, some, chance)
def test_wordpiece_texts_of_kept_tokens_stay(first, inner, draw):
    tokenizer = wordpiece("[UNK]", *first, *(f"##{token}" for token in inner))
    try:
        count_equal(tokenizer, draw, WORDS)
    except UserError:  # the case that `check` is there for
        assume(False)


@settings(max_examples=50, deadline=None)
@given(some, some, chance)
def test_wordpiece_with_all_letters_is_never_refused(first, inner, draw):
    """As in every published vocabulary: each letter stands there both ways."""
    tokenizer = wordpiece("[UNK]", *LETTERS, *first, *(f"##{token}" for token in [*LETTERS, *inner]))
    assert count_equal(tokenizer, draw, WORDS) > 0


def test_wordpiece_is_refused_where_an_unknown_word_would_become_known():
    tokenizer, without_ab = wordpiece("[UNK]", "a", "ab", "##bc", "##b"), wordpiece("[UNK]", "a", "##bc", "##b")
    assert tokenizer.encode("abc").tokens == ["[UNK]"]
    assert without_ab.encode("abc").tokens == ["a", "##bc"]
    with pytest.raises(UserError, match="'##bc' is in use, but there is no token '##c'"):
        vocabulary_of(json.loads(tokenizer.to_str())).check(frozenset({0, 1, 3, 4}))


def test_wordpiece_names_of_special_tokens_are_not_taken_for_words():
    """There is no ##C in an uncased vocabulary, and no word [CLS] either: BERT's rule cuts at the brackets."""
    tokenizer = wordpiece("[UNK]", "[CLS]", "a")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer()])
    vocabulary_of(json.loads(tokenizer.to_str())).check(frozenset({0, 1, 2}))


@settings(max_examples=150, deadline=None)
@given(
    some,
    st.lists(st.sampled_from([-100.0, -20.0, -20.0, -3.5, -2.0, -1.0, 0.0, 2.0]), min_size=13, max_size=13),
    st.booleans(),
    st.booleans(),
    chance,
)
def test_unigram_texts_of_kept_tokens_stay(drawn, scores, in_bytes, partly, draw):
    """Scores repeat, so that paths tie; one of -100 is hardly ever used, and yet says what unknown letters score."""
    scored = [("<unk>", 0.0), *zip(drawn, scores, strict=False)]
    if in_bytes:
        scored += [(f"<0x{byte:02X}>", -5.0) for byte in ([ord("z")] if partly else [*b"abcz"])]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=in_bytes))
    count_equal(tokenizer, draw, WORDS)


def test_unigram_keeps_what_unknown_letters_score():
    """Unknown letters score 10 less than the worst token: without it the second path would become the best."""
    scored = [("<unk>", 0.0), ("a", -100.0), ("ab", -20.0), ("c", -20.0), ("d", -20.0), ("bcd", -1.0)]
    tokenizer, without_a = (Tokenizer(models.Unigram(part, unk_id=0)) for part in (scored, [scored[0], *scored[2:]]))
    assert tokenizer.encode("abcd").tokens == ["ab", "c", "d"]
    assert without_a.encode("abcd").tokens == ["a", "bcd"]  # the first of them unknown
    assert 1 in vocabulary_of(json.loads(tokenizer.to_str())).always


@settings(max_examples=150, deadline=None)
@given(chance, st.integers(0, 14), st.sampled_from([None, "<unk>"]), st.booleans(), st.booleans())
def test_bpe_texts_of_kept_tokens_stay(draw, count, unknown, fuse, ignore_merges):
    vocabulary = ["<unk>", *LETTERS]
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        pair = draw.choice(vocabulary[1:]), draw.choice(vocabulary[1:])
        if pair not in merges and len("".join(pair)) <= 5:
            merges.append(pair)
            vocabulary += ["".join(pair)] * ("".join(pair) not in vocabulary)
    numbers = {token: n for n, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(numbers, merges, unk_token=unknown, fuse_unk=fuse, ignore_merges=ignore_merges))
    assert count_equal(tokenizer, draw, WORDS) > 0


ALPHABET = "".join(sorted({letter for text in SENTENCES for letter in text})) + "éß😀ЖXYZ"
texts = st.lists(
    st.one_of(
        st.sampled_from(SENTENCES),
        st.lists(st.sampled_from([word for text in SENTENCES for word in text.split()])).map(" ".join),
        st.text(ALPHABET, max_size=20),
    ),
    min_size=5,
    max_size=5,
)


@pytest.mark.parametrize("family", ["bert", "mpnet", "roberta", "xlm_roberta"])
@settings(max_examples=40, deadline=None)
@given(texts=texts, draw=chance)
def test_whole_pipelines_keep_texts_of_kept_tokens(family, texts, draw, tokenizer_folder):
    count_equal(Tokenizer.from_file(str(tokenizer_folder(family) / "tokenizer.json")), draw, texts)


def test_a_setting_of_bpe_that_is_not_proved_is_refused():
    tokenizer = Tokenizer(models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"))
    with pytest.raises(UserError, match="BPE vocabulary with 'end_of_word_suffix'"):
        vocabulary_of(json.loads(tokenizer.to_str()))


def test_unigram_without_unknown_token_is_refused():
    with pytest.raises(UserError, match="names no unknown token"):
        vocabulary_of(json.loads(Tokenizer(models.Unigram([("a", -1.0)])).to_str()))


def test_every_number_of_the_file_is_changed():
    from tokenizers import processors

    tokenizer = Tokenizer(models.WordPiece({t: n for n, t in enumerate("xyz")} | {"[UNK]": 3, "[C]": 4, "[S]": 5}))
    tokenizer.add_special_tokens(["[UNK]", "[C]", "[S]", "[NEW]"])
    tokenizer.enable_padding(pad_id=6, pad_token="[NEW]")
    for processor in (
        processors.BertProcessing(("[S]", 5), ("[C]", 4)),
        processors.RobertaProcessing(("[S]", 5), ("[C]", 4)),
        processors.Sequence(
            [processors.TemplateProcessing(single="[C] $A [S]", special_tokens=[("[C]", 4), ("[S]", 5)])]
        ),
    ):
        tokenizer.post_processor = processor
        content = json.loads(tokenizer.to_str())
        new = rewrite(content, vocabulary_of(content), {1: 0, 3: 1, 4: 2, 5: 3, 6: 4})
        smaller = Tokenizer.from_str(json.dumps(new))
        assert smaller.encode("y").ids == [2, 0, 3]
        assert smaller.token_to_id("[NEW]") == new["padding"]["pad_id"] == 4
