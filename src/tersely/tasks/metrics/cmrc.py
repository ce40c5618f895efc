"""CMRC 2018's exact match and F1 for Chinese answers. Golds are lists of right answers per row; answers are strings.

The rule of the official script (github.com/ymcui/cmrc2018, `cmrc2018_evaluate.py`, v5), but for its word splitter: runs
that are not Chinese are split there by NLTK, here by `WORDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

from .metric import Metric, mean, table
from .squad import best_of_golds

# The script's list. It names '……' too, which never equals one character: an ellipsis stays there, and here.
PUNCTUATION = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
NO_PUNCTUATION = str.maketrans("", "", PUNCTUATION)
CHINESE = re.compile(r"[\u4e00-\u9fa5]")

# A Chinese character or a mark of the list; a word, with '.' or "'" inside it and ',' between its digits; or one mark.
MARKS = r"!-/:-@\[-`{-~"
LETTERS = rf"[^\s{MARKS}\u4e00-\u9fa5{re.escape(PUNCTUATION)}]+"
WORDS = re.compile(rf"[\u4e00-\u9fa5{re.escape(PUNCTUATION)}]|{LETTERS}(?:(?:[.']|(?<=\d),(?=\d)){LETTERS})*|[{MARKS}]")

# One Chinese character says about as much as four letters, so at this share of letters half of the text is Chinese.
CHINESE_SHARE = 0.2


def segments(text: str) -> list[str]:
    """Chinese characters and punctuation one by one, other runs as words; in lower case.

    >>> segments("在2,008年Mac OS，")
    ['在', '2,008', '年', 'mac', 'os', '，']
    """
    return WORDS.findall(text.lower())


def remove_punctuation(text: str) -> str:
    """Lower-case and without the script's punctuation; what stood on both sides of a mark is joined.

    >>> remove_punctuation("《红楼梦》 A-B")
    '红楼梦 ab'
    """
    return text.lower().strip().translate(NO_PUNCTUATION)


def exact(gold: str, answer: str) -> float:
    """1.0 if both are the same but for case and punctuation, else 0.0.

    >>> exact("《红楼梦》", "红楼梦。")
    1.0
    """
    return float(remove_punctuation(gold) == remove_punctuation(answer))


def overlap(gold: str, answer: str) -> float:
    """F1 of the longest run of segments that both share; if one has no segments, whether both have none.

    (The script gives 0 where both are empty; it knows no rows without an answer.)

    >>> overlap("北京大学", "北方大学")
    0.5
    """
    golds, answers = segments(remove_punctuation(gold)), segments(remove_punctuation(answer))
    if not golds or not answers:
        return float(golds == answers)
    run = SequenceMatcher(None, golds, answers, autojunk=False).find_longest_match(0, len(golds), 0, len(answers))
    return 2 * run.size / (len(golds) + len(answers))


def answer_language(texts: Iterable[str]) -> str:
    """Tell by the share of Chinese characters among all letters whether answers are 'zh' or 'en'.

    >>> answer_language(["北京大学", "NBA总决赛"])
    'zh'
    >>> answer_language(["the Eiffel Tower", "1889"])
    'en'
    """
    chinese = letters = 0
    for text in texts:
        chinese += len(CHINESE.findall(text))
        letters += sum(map(str.isalpha, text))
    return "zh" if letters and chinese / letters >= CHINESE_SHARE else "en"


CMRC = table(Metric("f1", best_of_golds(overlap), mean), Metric("em", best_of_golds(exact), mean))
