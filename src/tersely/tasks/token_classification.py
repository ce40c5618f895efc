"""Tag the words of a sentence and read entities off the tags; where words stand, and how long sentences are cut."""

from __future__ import annotations

import itertools
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from ..data.rows import Rows
from . import metrics
from .encoder import Encoder, Feature, Logits, softmax
from .metrics import Metric
from .task import IGNORED, Columns, Facts, Input, InputError, Loss
from .wire import Wire
from .wire.token_classification import SPLIT, TagsWire

WORDS = ("words", "tokens", "text", "sentence")
TAGS = ("tags", "ner_tags", "labels", "label")


@dataclass(frozen=True)
class WordsExample:
    """Words, their gold tags, and where each stands in the text that they came from."""

    words: tuple[str, ...]
    gold: tuple[str, ...] | None = None
    text: str | None = None
    spans: tuple[tuple[int, int], ...] = ()


class Alignment(NamedTuple):
    """Which words a window answers for, where the first token of each is, and the sentence with its words."""

    words: NDArray[np.int64]
    places: NDArray[np.int64]
    sentence: WordsExample


@dataclass(frozen=True)
class Entity:
    """A named stretch: words `first` to `last` (exclusive), characters `start` to `end` (exclusive)."""

    label: str
    text: str
    start: int
    end: int
    first: int
    last: int
    score: float

    def as_json(self) -> dict[str, Any]:
        """Give plain types, places in characters."""
        place = {"start": self.start, "end": self.end}
        return {"label": self.label, "text": self.text, **place, "score": round(self.score, 6)}


@dataclass(frozen=True)
class Tagged:
    """A tag and its probability for every word, and the entities that the tags spell."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    scores: tuple[float, ...]
    entities: tuple[Entity, ...]

    def as_json(self) -> dict[str, Any]:
        """Give plain types."""
        entities = [entity.as_json() for entity in self.entities]
        return {"entities": entities, "words": list(self.words), "tags": list(self.tags)}

    def in_words(self) -> str:
        """Every word with its tag."""
        return ", ".join(f"{word} {tag}" for word, tag in zip(self.words, self.tags, strict=True))


@dataclass(frozen=True)
class TokenClassification:
    """One tag for each word; long sentences go through in windows that overlap, so that no word goes unlabelled."""

    name: ClassVar[str] = "token_classification"
    loss: ClassVar[Loss] = "tokens"
    outputs: ClassVar[tuple[str, ...]] = ("logits",)
    metrics: ClassVar[Mapping[str, Metric]] = metrics.ENTITIES
    centred_axis: ClassVar[int] = -1  # a common shift of one position's logits changes no softmax
    answer_columns: ClassVar[Mapping[str, Any]] = {
        "entities": [{"label": str, "text": str, "start": int, "end": int, "score": float}],
        "words": [str],
        "tags": [str],
    }
    wire: ClassVar[Wire] = TagsWire()
    facts: ClassVar[Facts] = Facts(
        call='model.predict(["a text", ["or", "a", "list", "of", "words"]])',
        gives="entities with character offsets and scores",
        answers_for="tokens",
        head="TokenClassification",
        kinds={"token_classification": None},
        inputs=(Input("text", words=SPLIT),),
        pipeline_tag="token-classification",
    )

    labels: tuple[str, ...]
    max_seq_length: int = 128
    metric: str = "f1"

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[WordsExample]:
        """Take words and tags; a text column is split as for `predict`, and cannot be scored."""
        words = rows.column("words_column", columns.words or columns.text, WORDS)
        tags = rows.column("tags_column", columns.tags or columns.label, [name for name in TAGS if name != words])
        if words is None:
            raise rows.lacks("There is no column of words.", hint="Name it with --words_column.")
        if labelled and tags is None:
            hint = "Give each word its tag in the last column, or name the column with --tags_column."
            raise rows.lacks("There are words but no tags.", hint=hint)
        return [
            self._read_row(rows, index, record.get(words), record.get(tags) if tags and labelled else None, labelled)
            for index, record in enumerate(rows)
        ]

    def examples(self, inputs: Any) -> list[WordsExample]:
        """Take texts (split at blanks, around punctuation and Chinese characters) or lists of words."""
        examples = []
        for index, item in enumerate(inputs):
            if isinstance(item, Mapping):
                item = item.get("words", item.get("text"))
            if isinstance(item, str):
                examples.append(WordsExample((), text=item))
            elif isinstance(item, (list, tuple)) and all(isinstance(word, str) for word in item):
                examples.append(_from_words(item, None))
            else:
                raise InputError(index, f"must be a text or a list of words. Got {type(item).__name__}.")
        return examples

    def features(self, examples: Sequence[WordsExample], encoder: Encoder) -> list[Feature]:
        """Windows of at most `max_seq_length` tokens that begin and end between words.

        Where windows overlap, a word belongs to the one in which it stands farther from the edge.
        """
        room = encoder.room(self.max_seq_length, encoder.single)
        lead = len(encoder.single.ids[0])
        features = []
        sentences = [_with_words(example) for example in examples]
        encodings = encoder.words([sentence.words for sentence in sentences])
        for index, (sentence, encoding) in enumerate(zip(sentences, encodings, strict=True)):
            ids = np.array(encoding.ids, np.int64)
            starts, words = first_tokens(encoding)
            sizes = np.minimum(np.diff(np.append(starts, len(ids))), room)
            for first, last, answers_from, answers_to in windows(sizes, room):
                tokens = [ids[starts[w] : starts[w] + sizes[w]] for w in range(first, last)]
                input_ids, types = encoder.single.around(np.concatenate([np.zeros(0, np.int64), *tokens]))
                places = lead + np.cumsum(np.append(0, sizes[first:last]))[:-1]
                mine = slice(answers_from - first, answers_to - first)
                alignment = Alignment(words[answers_from:answers_to], places[mine], sentence)
                features.append(Feature(index, input_ids, types, alignment))
        return features

    def targets(self, example: WordsExample, feature: Feature) -> Mapping[str, Any]:
        """`labels` [length]: the tag's index on the first token of each word, -100 elsewhere."""
        labels = np.full(len(feature), IGNORED, np.int64)
        words, places, _ = feature.alignment
        for word, place in zip(words, places, strict=True):
            labels[place] = self.labels.index((example.gold or ())[word])
        return {"labels": labels}

    def decode(
        self, examples: Sequence[WordsExample], features: Sequence[Feature], logits: Sequence[Logits]
    ) -> list[Tagged]:
        """Take the likeliest tag of each word; a word of which the tokenizer leaves nothing is outside."""
        outside = "O" if "O" in self.labels else self.labels[0]
        sentences = list(examples)
        for feature in features:
            sentences[feature.example] = feature.alignment.sentence
        tags = [[outside] * len(sentence.words) for sentence in sentences]
        scores = [[1.0] * len(sentence.words) for sentence in sentences]
        for feature, rows in zip(features, logits, strict=True):
            words, places, _ = feature.alignment
            chances = softmax(rows[places])
            for word, chance, best in zip(words, chances, np.argmax(rows[places], axis=-1), strict=True):
                tags[feature.example][word] = self.labels[int(best)]
                scores[feature.example][word] = float(chance[int(best)])
        return [self._answer(*row) for row in zip(sentences, tags, scores, strict=True)]

    def statistics(
        self, metric: str, examples: Sequence[WordsExample], answers: Sequence[Tagged]
    ) -> NDArray[np.float64]:
        """Statistics of tag sequences."""
        golds = [list(example.gold or ()) for example in examples]
        return self.metrics[metric].rows(golds, [list(answer.tags) for answer in answers])

    def agreement(self, answers: Sequence[Tagged], others: Sequence[Tagged]) -> NDArray[np.float64]:
        """Words with the same tag."""
        pairs = zip(answers, others, strict=True)
        return np.array([[_equal(a.tags, b.tags), len(a.tags)] for a, b in pairs], np.float64)

    def rightness(self, examples: Sequence[WordsExample], answers: Sequence[Tagged]) -> NDArray[np.float64]:
        """Words with the right tag."""
        pairs = zip(examples, answers, strict=True)
        return np.array([_equal(example.gold or (), answer.tags) for example, answer in pairs], np.float64)

    def _answer(self, example: WordsExample, tags: Sequence[str], scores: Sequence[float]) -> Tagged:
        text = example.text or ""
        found = []
        for label, first, last in metrics.entities(tags):
            start, end = example.spans[first][0], example.spans[last - 1][1]
            score = float(np.mean(scores[first:last]))
            plain = tags[first][1:2] != "-"  # tags of no scheme (NOUN, LABEL_1): all of it is the label
            label = tags[first] if plain else label
            found.append(Entity(label, text[start:end], start, end, first, last, score))
        return Tagged(example.words, tuple(tags), tuple(scores), tuple(found))

    def _read_row(self, rows: Rows, index: int, words: Any, tags: Any, labelled: bool) -> WordsExample:
        if isinstance(words, str) and not labelled:
            return WordsExample((), text=words)
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise rows.error(index, f"The words must be a list of texts. Got {type(words).__name__}.")
        if tags is None:
            if labelled:
                raise rows.error(index, "There are words but no tags.", hint="Give each word its tag.")
            return _from_words(words, None)
        if not isinstance(tags, (list, tuple)) or len(tags) != len(words):
            count = len(tags) if isinstance(tags, (list, tuple)) else type(tags).__name__
            raise rows.error(index, f"There must be one tag for each of the {len(words)} words. Got {count}.")
        names = tuple(self._tag(rows, index, tag) for tag in tags)
        return _from_words(words, names)

    def _tag(self, rows: Rows, index: int, tag: Any) -> str:
        if isinstance(tag, int) and str(tag) not in self.labels and 0 <= tag < len(self.labels):
            return self.labels[tag]  # data sets of the hub hold positions
        if str(tag) in self.labels:
            return str(tag)
        known = f"{len(self.labels)}: {', '.join(self.labels)}."
        raise rows.error(index, f"The tag '{tag}' is not one of the model's {known}")


def _equal(tags: Sequence[str], others: Sequence[str]) -> int:
    return sum(tag == other for tag, other in zip(tags, others, strict=True))


def _with_words(example: WordsExample) -> WordsExample:
    """Give an example that came as a text its words."""
    if example.text is None or example.words:
        return example
    spans = tuple(word_spans(example.text))
    words = tuple(example.text[start:end] for start, end in spans)
    return WordsExample(words, example.gold, example.text, spans)


def _from_words(words: Sequence[str], gold: tuple[str, ...] | None) -> WordsExample:
    """Lay words out as a text: side by side if each is one character, else with a blank between them."""
    gap = 0 if all(len(word) == 1 for word in words) else 1
    ends = np.cumsum([len(word) + gap for word in words], dtype=int) - gap
    spans = tuple((int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True))
    return WordsExample(tuple(words), gold, (" " * gap).join(words), spans)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text are: runs between blanks; each punctuation mark and Chinese character is one.

    BERT's rule, for every tokenizer: what SentencePiece and byte-level BPE call a word may be a whole Chinese sentence.

    >>> [text[start:end] for text in ["In U.S., 北京。"] for start, end in word_spans(text)]
    ['In', 'U', '.', 'S', '.', ',', '北', '京', '。']
    """
    spans: list[tuple[int, int]] = []
    open_run = False
    for place, letter in enumerate(text):
        alone = _stands_alone(letter)
        if open_run and not alone and not letter.isspace():
            spans[-1] = (spans[-1][0], place + 1)
        elif not letter.isspace():
            spans.append((place, place + 1))
        open_run = not alone and not letter.isspace()
    return spans


def _stands_alone(letter: str) -> bool:
    """Tell punctuation (ASCII symbols count, as for BERT) and Chinese characters."""
    if letter.isascii():
        return letter in string.punctuation
    kind = unicodedata.category(letter)
    return kind.startswith("P") or (kind == "Lo" and unicodedata.name(letter, "").startswith("CJK"))


def first_tokens(encoding: Encoding) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each word's first token is [words with tokens], and which word that is."""
    owners = np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)
    if not len(owners):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    return begins, owners[begins]


def windows(sizes: NDArray[np.int64], room: int) -> list[tuple[int, int, int, int]]:
    """Cut words of these sizes into (first, last, answers from, answers to) with a quarter of overlap."""
    if int(sizes.sum()) <= room:
        return [(0, len(sizes), 0, len(sizes))]
    ends = np.cumsum(sizes)
    bounds = []
    first = 0
    while True:
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
        bounds.append((first, last))
        if last >= len(sizes):
            break
        back = int(np.searchsorted(ends, int(ends[last - 1]) - room // 4, side="right"))
        first = max(first + 1, min(back, last))
    cuts = [0, *((nxt[0] + cur[1]) // 2 for cur, nxt in itertools.pairwise(bounds)), len(sizes)]
    return [(first, last, cuts[i], cuts[i + 1]) for i, (first, last) in enumerate(bounds)]
