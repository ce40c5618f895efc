"""Texts to try a model with, in a language that its vocabulary spells."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ..artifact import Artifact
from ..measure.check import FILE as PROBE
from ..measure.check import read_probe
from ..tasks import Encoder, Task
from ..tasks.wire import Sample

CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Share of a vocabulary with Chinese characters in it: English BERT 2 %, multilingual BERT 8 %, Chinese BERT 69 %.
SOME_CHINESE, MOSTLY_CHINESE = 0.04, 0.3


def examples_for(task: Task, encoder: Encoder, pairs: bool | None = None) -> list[Sample]:
    """Inputs for a task, as the `data` of a request; `pairs`: only pairs of texts, or only single ones."""
    wire = task.wire
    return [sample for language in languages(encoder) for sample in wire.samples(language, pairs)]


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
