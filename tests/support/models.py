"""Builders of small random-weight models with small tokenizers: real folders, ready in a second."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

FAMILIES = (
    "bert", "roberta", "xlm_roberta", "ernie", "electra", "distilbert",
    "mpnet", "camembert", "deberta_v2", "albert", "modernbert",
)  # fmt: skip
ROBERTA_ITSELF = ("xlm_roberta", "camembert")
"""Families that transformers builds module for module as roberta."""
EVERY_FAMILY = [
    pytest.param(family, marks=pytest.mark.long) if family in ROBERTA_ITSELF else family for family in FAMILIES
]
"""For tests that export or train a model of every family: those that repeat roberta are long."""
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
MAX_LENGTH = 96
"""The longest sequence, special tokens included, that every model built here takes."""

SENTENCES = (
    "The quick brown fox jumps over the lazy dog near the old river bank.",
    "Amrozi accused his brother, whom he called the witness, of deliberately distorting his evidence.",
    "A film of quiet grace that never finds its way out of the dark.",
    "Paris is the capital of France; Berlin, that of Germany.",
    "What did the company say about its profit in the third quarter of 2003?",
    "The shares rose 12 percent on Friday, and analysts were not surprised.",
    "今天天气很好,我们去公园散步。",
    "北京是中华人民共和国的首都。",
)

_WORDPIECE = {"bert", "ernie", "electra", "distilbert", "mpnet"}
_BYTE_BPE = {"roberta", "modernbert"}
_ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_SPECIALS = {
    "roberta": _ROBERTA_SPECIALS,
    "xlm_roberta": _ROBERTA_SPECIALS,
    "camembert": _ROBERTA_SPECIALS,
    "mpnet": _ROBERTA_SPECIALS,
}
_ROBERTA_LIKE = {"roberta", "xlm_roberta", "camembert", "mpnet"}
_BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
# Padding is number 1, as in the published ones; mpnet has that number written into its code.
_ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}


def build(
    folder: str | Path,
    family: str = "bert",
    head: str = "SequenceClassification",
    *,
    labels: int = 3,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    vocab: int = 220,
    seed: int = 0,
    sentences: tuple[str, ...] = SENTENCES,
    std: float = 0.3,
    **config: Any,
) -> Path:
    """Write a model of random weights and its tokenizer to a folder; same arguments, same bytes.

    `config` overrides single fields of the model's configuration. `std` is far above the usual 0.02, so that logits
    spread out and agreement to 1e-4 means something.
    """
    import torch

    folder = Path(folder)
    labels = 2 if head == "QuestionAnswering" else labels
    tokenizer = build_tokenizer(folder, family, vocab=vocab, sentences=sentences)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _module(family, head, _fields(family, tokenizer, labels, hidden, layers, heads) | config)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                # Norms stay near one: with wild gains two layers of random weights overflow what 1e-4 can resolve.
                near = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
                parameter.copy_(near + torch.randn_like(parameter) * (std if parameter.ndim > 1 else 0.1))
    module.save_pretrained(folder)
    return folder


def build_tokenizer(
    folder: str | Path, family: str = "bert", *, vocab: int = 220, sentences: tuple[str, ...] = SENTENCES
) -> Any:
    """Write the kind of tokenizer that the family uses to a folder; gives a `tokenizers.Tokenizer`.

    The vocabularies are counted here: the trainers of `tokenizers` break ties by hash order, anew in every process.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    roles = _specials(family)
    start, end, unk, specials = roles["cls"], roles["sep"], roles["unk"], list(roles.values())
    if family in _WORDPIECE:
        normalizer, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
        words = _count(sentences, normalizer, split)
        letters = sorted({letter for word in words for letter in word})
        tokens = _first(vocab, specials, letters, [f"##{letter}" for letter in letters], _frequent(words))
        tokenizer = Tokenizer(models.WordPiece({token: number for number, token in enumerate(tokens)}, unk_token=unk))
        tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, split, decoders.WordPiece()
    elif family in _BYTE_BPE:
        split = pre_tokenizers.ByteLevel(add_prefix_space=False)
        merges = _merges(_count(sentences, None, split), 60)
        # All 256 bytes are in the alphabet, so the vocabulary cannot be smaller than that.
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = _first(1000, specials, alphabet, [left + right for left, right in merges])
        tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    else:
        normalizer, split = normalizers.NFKC(), pre_tokenizers.Metaspace()
        words = _count(sentences, normalizer, split)
        letters = sorted({letter for word in words for letter in word})
        tokens = _first(vocab, specials, letters, _frequent(words))
        scores = [(token, -10.0 / len(token)) for token in tokens]
        tokenizer = Tokenizer(models.Unigram(scores, unk_id=tokens.index(unk), byte_fallback=False))
        tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, split, decoders.Metaspace()
    tokenizer.add_special_tokens(specials)
    ids = [(token, tokenizer.token_to_id(token)) for token in (start, end)]
    # RoBERTa and its kin put two separators between a pair and know no second segment.
    double = family in _ROBERTA_LIKE
    second = 0 if double else 1
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {end} $B {end}" if double else f"{start} $A {end} $B:{second} {end}:{second}",
        special_tokens=ids,
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    types = [] if double or family in {"distilbert", "modernbert"} else ["token_type_ids"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{role}_token": token for role, token in roles.items()},
        "model_max_length": MAX_LENGTH,
        "model_input_names": ["input_ids", *types, "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return tokenizer


def _count(sentences: tuple[str, ...], normalizer: Any, split: Any) -> Counter[str]:
    texts = (normalizer.normalize_str(text) if normalizer else text for text in sentences)
    return Counter(word for text in texts for word, _ in split.pre_tokenize_str(text))


def _frequent(words: Counter[str]) -> list[str]:
    return sorted(words, key=lambda word: (-words[word], word))


def _first(most: int, *groups: list[str]) -> list[str]:
    return list(dict.fromkeys(token for group in groups for token in group))[:most]


def _merges(words: Counter[str], most: int) -> list[tuple[str, str]]:
    """Byte-pair encoding as first described (Sennrich et al. 2016, algorithm 1), ties in alphabetical order."""
    spelled = {word: tuple(word) for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < most:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, letters in spelled.items():
            for pair in pairwise(letters):
                pairs[pair] += words[word]
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        for word, letters in spelled.items():
            joined: list[str] = []
            for letter in letters:
                if joined and joined[-1] == left and letter == right:
                    joined[-1] = left + right
                else:
                    joined.append(letter)
            spelled[word] = tuple(joined)
    return merges


def _fields(family: str, tokenizer: Any, labels: int, hidden: int, layers: int, heads: int) -> dict[str, Any]:
    """The configuration's fields in the family's own words."""
    roles = _specials(family)
    fields: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "pad_token_id": tokenizer.token_to_id(roles["pad"]),
        "bos_token_id": tokenizer.token_to_id(roles["cls"]),
        "eos_token_id": tokenizer.token_to_id(roles["sep"]),
        "id2label": {number: f"LABEL_{number}" for number in range(labels)},
        "label2id": {f"LABEL_{number}": number for number in range(labels)},
    }
    if family == "distilbert":
        return fields | {
            "dim": hidden, "n_layers": layers, "n_heads": heads, "hidden_dim": 2 * hidden,
            "max_position_embeddings": MAX_LENGTH,
        }  # fmt: skip
    fields |= {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 2 * hidden, "max_position_embeddings": MAX_LENGTH,
    }  # fmt: skip
    if family in _ROBERTA_LIKE:
        # Their positions count from pad_token_id + 1.
        fields |= {"max_position_embeddings": MAX_LENGTH + 2}
    if family in {"roberta", "xlm_roberta", "camembert"}:
        fields |= {"type_vocab_size": 1}
    if family in {"electra", "albert"}:
        fields |= {"embedding_size": hidden // 2}
    if family == "deberta_v2":
        # As the published v3 models have it: relative positions in both directions, keys shared with the content.
        fields |= {
            "relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
            "type_vocab_size": 0, "pooler_hidden_size": hidden,
        }  # fmt: skip
    if family == "modernbert":
        fields |= {
            "cls_token_id": tokenizer.token_to_id(roles["cls"]), "sep_token_id": tokenizer.token_to_id(roles["sep"]),
            "local_attention": 16, "global_attn_every_n_layers": 2,
        }  # fmt: skip
    return fields


def _specials(family: str) -> dict[str, str]:
    return _ROBERTA_SPECIALS if family in _ROBERTA_LIKE else _BERT_SPECIALS


def _module(family: str, head: str, fields: dict[str, Any]) -> Any:
    import transformers

    config = transformers.AutoConfig.for_model(family.replace("_", "-"), **fields)
    return getattr(transformers, f"AutoModelFor{head}").from_config(config).eval()
