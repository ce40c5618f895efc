"""Texts to try a model with, in a language that its vocabulary spells."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ..artifact import Artifact
from ..measure.check import FILE as PROBE
from ..measure.check import read_probe
from ..tasks import Encoder, QuestionAnswering, SequenceClassification, Task, TokenClassification

CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Share of a vocabulary with Chinese characters in it: English BERT 2 %, multilingual BERT 8 %, Chinese BERT 69 %.
SOME_CHINESE, MOSTLY_CHINESE = 0.04, 0.3

SINGLE = {
    "en": (
        {"text": "The service was slow, but the food more than made up for it."},
        {"text": "Nobody at the desk could tell me when the train would arrive."},
        {"text": "The new phone lasts two days on one charge and weighs less than the old one."},
    ),
    "zh": (
        {"text": "主队在最后一分钟攻入制胜一球，全场球迷欢呼庆祝。"},
        {"text": "手机收到的时候屏幕已经碎了，客服说要等三天才能处理。"},
        {"text": "新款电动车续航超过六百公里，售价二十万元起。"},
    ),
}
PAIRED = {
    "en": (
        {
            "text": "The company said that its profit rose by 12 percent in the first quarter.",
            "text_pair": "Profit was up 12 percent in the first three months of the year, the company said.",
        },
        {
            "text": "The museum opens at nine and closes at five.",
            "text_pair": "The museum was built by an architect from Oslo.",
        },
        {
            "text": "Shares of the airline fell 3 percent after it warned of higher fuel costs.",
            "text_pair": "The airline's shares rose after it said that fuel had become cheaper.",
        },
    ),
    "zh": (
        {"text": "请问怎么修改收货地址？", "text_pair": "下单以后还能换一个收货地址吗？"},
        {"text": "博物馆早上九点开门，下午五点关门。", "text_pair": "这座博物馆是一位建筑师设计的。"},
        {"text": "航空公司的股价下跌了百分之三。", "text_pair": "燃油便宜了，这家航空公司的股票随之上涨。"},
    ),
}
TAGGED = {
    "en": (
        {"text": "Ada Okafor moved from Lagos to Geneva in 1998 to work for the Red Cross."},
        {"text": "The University of Oslo and Siemens opened a laboratory in Hamburg on Tuesday."},
    ),
    "zh": (
        {"text": "昨天下午，张伟从北京飞往上海，参加中国科学院的年度会议。"},
        {"text": "李娜毕业于南京大学，现在在联合国教科文组织工作，常住巴黎。"},
    ),
}
CONTEXTS = {
    "en": (
        "The lighthouse on the island was built in 1753 and rebuilt in 1814 after a storm had damaged it. Its lamp "
        "burned oil until 1935, when electric light took its place. Since 1996 nobody lives there; the light is "
        "switched on and off from the mainland, and on summer weekends the harbour master Lena Berg shows visitors "
        "around."
    ),
    "zh": (
        "江边的老图书馆建于一九二六年，由建筑师陈明设计，最初只有两层。一九五八年，图书馆向东扩建，增加了一个可以容纳三百人的"
        "阅览室。二〇一九年起，馆内的古籍陆续完成数字化，读者在家里就能查阅。每逢周三，图书馆闭馆整理图书。"
    ),
}
QUESTIONS = {
    "en": ("When was the lighthouse built?", "Who shows visitors around?", "What did the lamp burn until 1935?"),
    "zh": ("老图书馆是谁设计的？", "阅览室可以容纳多少人？", "图书馆什么时候闭馆？"),
}


def examples_for(task: Task, encoder: Encoder, pairs: bool | None = None) -> list[Mapping[str, str]]:
    """Inputs for a task, as the `data` of a request; `pairs`: only pairs of texts, or only single ones."""
    found: list[Mapping[str, str]] = []
    for language in languages(encoder):
        if isinstance(task, QuestionAnswering):
            context = CONTEXTS[language]
            found += [{"question": question, "context": context} for question in QUESTIONS[language]]
        elif isinstance(task, TokenClassification):
            found += TAGGED[language]
        elif isinstance(task, SequenceClassification):
            single, paired = {True: (0, 3), False: (3, 0), None: (2, 1)}[pairs]
            found += [*SINGLE[language][:single], *PAIRED[language][:paired]]
    return found


def takes_pairs(opened: Artifact, encoder: Encoder) -> bool | None:
    """Whether a classifier is for pairs of texts, as the rows of its probe are; None where they do not tell."""
    second_type = encoder.pair.types[3]
    if second_type == 0 or PROBE not in opened.manifest.files:
        return None  # RoBERTa and its kin have one type for both
    pairs = {bool((feature.token_type_ids == second_type).any()) for feature in read_probe(opened).features}
    return pairs.pop() if len(pairs) == 1 else None


def languages(encoder: Encoder) -> Sequence[str]:
    """`en`, `zh` or both: what the vocabulary is made for."""
    vocabulary = json.loads(encoder.to_json())["model"]["vocab"]
    # A Unigram model lists pieces with scores; the others map pieces to numbers.
    pieces = [entry if isinstance(entry, str) else entry[0] for entry in vocabulary]
    share = sum(CHINESE.search(piece) is not None for piece in pieces) / max(1, len(pieces))
    if share >= MOSTLY_CHINESE:
        return ("zh",)
    return ("en", "zh") if share >= SOME_CHINESE else ("en",)
