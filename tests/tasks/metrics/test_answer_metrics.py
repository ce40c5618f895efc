"""SQuAD's and CMRC 2018's rules against brute force and by their properties."""

import re
import string
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tersely.tasks.metrics import CMRC, SQUAD, Metric, answer_language
from tersely.tasks.metrics.cmrc import segments
from tersely.tasks.metrics.squad import normalize_answer

BOTH = pytest.mark.parametrize("table", [pytest.param(SQUAD, id="squad"), pytest.param(CMRC, id="cmrc")])
words = st.lists(st.sampled_from(["red", "blue", "fish", "the", "An", "Two,", "2008"]), min_size=1, max_size=6)
hanzi = st.text(alphabet="北京大学上海a1 ，。", max_size=8)


def score(table: Mapping[str, Metric], name: str, gold: str, answer: str) -> float:
    return table[name].score([[gold]], [answer])


@BOTH
@pytest.mark.parametrize("name", ["em", "f1"])
@pytest.mark.parametrize("text", ["red fish", "北京大学", "NBA 总决赛，2008", "3.5%"])
def test_identical_answer_scores_one(table: Mapping[str, Metric], name: str, text: str) -> None:
    assert score(table, name, text, text) == 1.0


@BOTH
@pytest.mark.parametrize("name", ["em", "f1"])
@pytest.mark.parametrize(("gold", "answer"), [("red fish", "blue whale"), ("北京", "上海")])
def test_disjoint_answer_scores_zero(table: Mapping[str, Metric], name: str, gold: str, answer: str) -> None:
    assert score(table, name, gold, answer) == 0.0


@BOTH
@pytest.mark.parametrize("name", ["em", "f1"])
def test_several_golds_give_the_best(table: Mapping[str, Metric], name: str) -> None:
    golds = ["whale", "red fish", "blue fish"]
    best = max(score(table, name, gold, "red fish") for gold in golds)
    assert table[name].score([golds], ["red fish"]) == best == 1.0


@BOTH
@pytest.mark.parametrize("name", ["em", "f1"])
@pytest.mark.parametrize(
    ("golds", "answer", "expected"), [([], "", 1), ([], "fish", 0), (["fish"], "", 0), ([""], "", 1)]
)
def test_row_without_golds_asks_for_the_empty_answer(
    table: Mapping[str, Metric], name: str, golds: list[str], answer: str, expected: int
) -> None:
    assert table[name].score([golds], [answer]) == expected


@BOTH
@settings(deadline=None)
@given(words, words)
def test_f1_is_symmetric_and_at_least_em(table: Mapping[str, Metric], left: list[str], right: list[str]) -> None:
    gold, answer = " ".join(left), " ".join(right)
    assert score(table, "f1", gold, answer) == score(table, "f1", answer, gold)
    assert score(table, "f1", gold, answer) >= score(table, "em", gold, answer)


@BOTH
def test_score_is_the_mean_over_rows(table: Mapping[str, Metric]) -> None:
    assert table["em"].score([["red"], ["blue"], ["fish"], ["two"]], ["red", "fish", "fish", "2"]) == 0.5


def squad_f1(gold: str, answer: str) -> float:
    """Bag overlap by crossing words off a list."""

    def split(text: str) -> list[str]:
        kept = "".join(mark for mark in text.lower() if mark not in string.punctuation)
        return [word for word in re.split(r"\s+", kept) if word not in ("a", "an", "the", "")]

    left, right, same = split(gold), split(answer), 0
    for word in list(left):
        if word in right:
            right.remove(word)
            same += 1
    total = len(left) + len(split(answer))
    return 2 * same / total if total else 1.0


@settings(deadline=None)
@given(words, words)
def test_squad_f1_equals_crossing_off_words(left: list[str], right: list[str]) -> None:
    gold, answer = " ".join(left), " ".join(right)
    assert score(SQUAD, "f1", gold, answer) == pytest.approx(squad_f1(gold, answer))


@pytest.mark.parametrize(
    ("text", "normal"),
    [("The Theatre", "theatre"), (" a  b-c. ", "bc"), ("An apple a day", "apple day"), ("the", ""), ("U.S.", "us")],
)
def test_normalize_answer_drops_articles_and_punctuation(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def cmrc_f1(gold: str, answer: str) -> float:
    """The longest shared run by trying all of them."""

    def split(text: str) -> list[str]:
        kept = "".join(mark for mark in text.lower() if mark not in "，。")
        return re.findall(r"[\u4e00-\u9fa5]|[a-z0-9]+", kept)

    left, right = split(gold), split(answer)
    runs = [left[i:j] for i in range(len(left)) for j in range(i + 1, len(left) + 1)]
    shared = [len(run) for run in runs if any(right[k : k + len(run)] == run for k in range(len(right)))]
    if not left or not right:
        return float(left == right)
    return 2 * max(shared, default=0) / (len(left) + len(right))


@settings(deadline=None)
@given(hanzi, hanzi)
def test_cmrc_f1_equals_trying_all_runs(gold: str, answer: str) -> None:
    assert score(CMRC, "f1", gold, answer) == pytest.approx(cmrc_f1(gold, answer))


def test_cmrc_f1_counts_a_run_and_not_a_bag() -> None:
    assert score(CMRC, "f1", "北京大学", "大学北京") == 0.5  # a bag would give 1
    assert score(CMRC, "f1", "北京大学", "北方大学") == 0.5  # a common subsequence would give 0.75


def test_cmrc_f1_of_long_answers_counts_frequent_characters() -> None:
    gold = "北京大学" * 60
    assert score(CMRC, "f1", gold, gold + "上") == pytest.approx(480 / 481)
    assert score(CMRC, "f1", "上" + gold, gold + "上") == pytest.approx(480 / 482)


def test_cmrc_ignores_case_and_its_own_punctuation() -> None:
    for name in ("em", "f1"):
        assert score(CMRC, name, "《Harry-Potter》", "harrypotter。") == 1.0


def test_cmrc_keeps_punctuation_that_the_script_does_not_list() -> None:
    assert score(CMRC, "em", "北京,上海", "北京上海") == 0.0
    assert score(CMRC, "em", "北京……", "北京") == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("北京2008", ["北", "京", "2008"]),
        ("《Mac OS》", ["《", "mac", "os", "》"]),
        ("1,000.5%", ["1,000.5", "%"]),
        ("red, (blue)!", ["red", ",", "(", "blue", ")", "!"]),
        ("don't u.s.", ["don't", "u.s", "."]),
        ("a-b", ["a", "-", "b"]),
        ("  ", []),
    ],
)
def test_segments_split_characters_words_and_marks(text: str, expected: list[str]) -> None:
    assert segments(text) == expected


@settings(deadline=None)
@given(st.text())
def test_segments_lose_nothing_but_blanks(text: str) -> None:
    assert "".join(segments(text)) == re.sub(r"\s", "", text.lower())


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["北京", "2008年"], "zh"),
        (["Steve Jobs", "苹果公司"], "zh"),
        (["the Chinese word 茶 for tea"], "en"),
        (["1889", "%"], "en"),
        ([], "en"),
    ],
)
def test_answer_language_follows_the_share_of_chinese(texts: list[str], language: str) -> None:
    assert answer_language(texts) == language
