"""A model folder with a smaller vocabulary: same logits on texts whose tokens stay, files that fit each other."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from models import FAMILIES, SENTENCES, build
from tersely.engines.torch import TorchEngine
from tersely.models.families import longest
from tersely.models.folder import NOTES, open_folder
from tersely.models.torch_folder import load_module
from tersely.prune.vocabulary import PrunedVocabulary, prune_vocabulary

KEPT = (*SENTENCES[:3], SENTENCES[6])
LENGTH = 64
TABLELESS = ("deberta_v2", "modernbert")
OWN = {
    "bert": "BertTokenizer",
    "electra": "ElectraTokenizer",
    "distilbert": "DistilBertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm_roberta": "XLMRobertaTokenizer",
    "deberta_v2": "DebertaV2Tokenizer",
    "albert": "AlbertTokenizer",
}
"""The classes that published folders name: transformers builds their tokenizers anew from the vocabulary."""


def prune(folder: Path, texts: Any = KEPT, **options: Any) -> PrunedVocabulary:
    opened = open_folder(folder)
    examples, seen = opened.task.examples(texts), opened.task.examples(SENTENCES)
    return prune_vocabulary(opened, examples, f"{folder}-cut", eval_examples=seen, **options)


def rows(folder: Path, texts: Any, length: int) -> list[tuple[list[str], Any]]:
    """The tokens and logits of each text, in torch."""
    opened = open_folder(folder)
    task = dataclasses.replace(opened.task, max_seq_length=length)
    engine, core = TorchEngine(load_module(folder), threads=1), AutoTokenizer.from_pretrained(folder)
    outputs = []
    for feature in task.features(task.examples(texts), opened.encoder):
        # Some padding, so that its number matters.
        ids = np.append(feature.input_ids, [opened.encoder.pad_id] * 2)[None]
        mask = np.append(np.ones(len(feature), np.int64), [0, 0])[None]
        types = np.append(feature.token_type_ids, [0, 0])[None]
        batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        outputs.append((core.convert_ids_to_tokens(feature.input_ids.tolist()), engine.run(batch)))
    return outputs


def assert_same(before: Path, after: Path, texts: Any, length: int = LENGTH) -> None:
    for (tokens, logits), (others, changed) in zip(
        rows(before, texts, length), rows(after, texts, length), strict=True
    ):
        assert tokens == others
        for expected, other in zip(logits, changed, strict=True):
            np.testing.assert_allclose(expected, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_in_every_family(family, tmp_path):
    folder = build(tmp_path / "model", family, layers=1)
    result = prune(folder, max_seq_length=LENGTH)
    assert result.tokens_after < result.tokens_before
    assert result.bytes_after < result.bytes_before
    assert_same(folder, result.folder, [*KEPT, (KEPT[0], KEPT[3])])
    config = json.loads((result.folder / "config.json").read_text())
    tensors = safetensors.torch.load_file(result.folder / "model.safetensors")
    words = next(t for name, t in tensors.items() if name.endswith(("word_embeddings.weight", "tok_embeddings.weight")))
    assert len(words) == config["vocab_size"] == result.tokens_after
    assert AutoTokenizer.from_pretrained(result.folder).pad_token_id == config["pad_token_id"]
    if family in TABLELESS:
        assert result.positions_before is result.positions_after is None
    else:
        assert (result.positions_before, result.positions_after) == (96, LENGTH)
        assert longest(config) == LENGTH
    with torch.no_grad():  # as the rest of the world loads it
        AutoModelForSequenceClassification.from_pretrained(result.folder)(
            **AutoTokenizer.from_pretrained(result.folder)(KEPT[0], return_tensors="pt")
        )


@pytest.mark.parametrize("family", OWN)
def test_tokenizers_of_a_class_of_their_own_are_cut_too(family, tmp_path):
    folder = build(tmp_path / "model", family, layers=1)
    change(folder / "tokenizer_config.json", tokenizer_class=OWN[family])
    result = prune(folder)
    assert result.tokens_after < result.tokens_before
    assert_same(folder, result.folder, KEPT)


def test_camembert_as_it_is_published(tmp_path):
    """Its class adds three tokens that are named as unused; one of them has the worst score of all."""
    folder = build(tmp_path / "model", "camembert", layers=1, vocab_size=141)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] += [["<s>NOTUSED", 0.0], ["</s>NOTUSED", 0.0], ["<unk>NOTUSED", -100.0]]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    change(folder / "tokenizer_config.json", tokenizer_class="CamembertTokenizer")
    result = prune(folder, [*KEPT, "😀😀 is unknown"], max_seq_length=LENGTH)
    assert result.tokens_after < result.tokens_before == 141
    assert_same(folder, result.folder, [*KEPT, "😀😀 is unknown"])


@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_other_heads_are_cut_alike(head, tmp_path):
    folder = build(tmp_path / "model", "bert", head, layers=1)
    pairs = [("what is the dog", SENTENCES[0]), ("who", SENTENCES[1])]
    texts = pairs if head == "QuestionAnswering" else [text.split() for text in SENTENCES[:2]]
    opened = open_folder(folder)
    result = prune_vocabulary(opened, opened.task.examples(texts), tmp_path / "cut", max_seq_length=LENGTH)
    assert result.tokens_after < result.tokens_before
    assert_same(folder, result.folder, texts)


def test_special_tokens_in_the_midst_are_renumbered(tmp_path):
    """As BERT's own vocabulary has them, behind a hundred that nobody uses; one more was added at its end."""
    folder = build(tmp_path / "model", "bert", layers=1, pad_token_id=3, vocab_size=230)
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    order = [*sorted(vocabulary, key=lambda token: (token in ("[PAD]", "[CLS]", "[UNK]"), vocabulary[token])), "[NEW]"]
    numbers = {token: number for number, token in enumerate(order)}
    content["model"]["vocab"] = {token: number for token, number in numbers.items() if token != "[NEW]"}
    content["added_tokens"].append({**content["added_tokens"][0], "content": "[NEW]"})
    content["added_tokens"] = sorted(
        ({**token, "id": numbers[token["content"]]} for token in content["added_tokens"]), key=lambda token: token["id"]
    )
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [numbers[token["id"]]]
    content["truncation"] = {"max_length": 90, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    content["padding"] = {
        "strategy": {"Fixed": 90}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": numbers["[PAD]"], "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in order[:-1]))
    (folder / "added_tokens.json").write_text(json.dumps({"[NEW]": numbers["[NEW]"]}))
    change(folder / "config.json", pad_token_id=numbers["[PAD]"], eos_token_id=[numbers["[SEP]"], 9999])
    named = {str(t["id"]): {key: value for key, value in t.items() if key != "id"} for t in content["added_tokens"]}
    change(folder / "tokenizer_config.json", added_tokens_decoder=named)
    (folder / "generation_config.json").write_text(json.dumps({"pad_token_id": numbers["[PAD]"], "top_k": 3}))
    (folder / "README.md").write_text("# Mine\n")
    texts = [*KEPT, f"the [NEW] dog {SENTENCES[0]}", "😀 is unknown"]
    result = prune(folder, texts, max_seq_length=LENGTH)
    assert_same(folder, result.folder, texts)
    core = AutoTokenizer.from_pretrained(result.folder)
    config = json.loads((result.folder / "config.json").read_text())
    assert config["pad_token_id"] == core.pad_token_id < numbers["[PAD]"]
    assert config["eos_token_id"] == [core.sep_token_id, 9999]  # what named no token still names none
    assert json.loads((result.folder / "added_tokens.json").read_text()) == {
        "[NEW]": core.convert_tokens_to_ids("[NEW]")
    }
    decoder = json.loads((result.folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert {t["content"]: int(n) for n, t in decoder.items()} == {
        t["content"]: core.convert_tokens_to_ids(t["content"]) for t in content["added_tokens"]
    }
    generation = json.loads((result.folder / "generation_config.json").read_text())
    assert generation == {"pad_token_id": core.pad_token_id, "top_k": 3}
    assert (result.folder / "README.md").read_text() == "# Mine\n"
    lines = (result.folder / "vocab.txt").read_text().splitlines()
    assert {token: number for number, token in enumerate(lines)} == {
        token: number for token, number in core.get_vocab().items() if token != "[NEW]"
    }
    written = json.loads((result.folder / "tokenizer.json").read_text())
    assert written["padding"]["pad_id"] == core.pad_token_id
    assert written["truncation"]["max_length"] == written["padding"]["strategy"]["Fixed"] == LENGTH


def test_every_training_row_stays_though_it_is_cut_in_a_word(tmp_path):
    """The last word's first tokens are fed, its others never; without these the word would be split in another way."""
    folder = build(tmp_path / "model", layers=1)
    opened = open_folder(folder)
    for length in range(4, 30):
        task = dataclasses.replace(opened.task, max_seq_length=length)
        examples = task.examples([("the dogzzqfox jumpsover", SENTENCES[3]), SENTENCES[4].replace(" ", "")])
        cut = prune_vocabulary(dataclasses.replace(opened, task=task), examples, tmp_path / f"cut{length}",
                               eval_examples=examples)  # fmt: skip
        assert cut.same_rows == 1.0


def test_max_vocab_size_keeps_the_frequent(tmp_path):
    folder = build(tmp_path / "model", layers=1)
    texts = ["fox fox fox"] * 5 + ["dog dog"] * 3 + [SENTENCES[3]]
    result = prune(folder, texts, max_vocab_size=12)
    known = AutoTokenizer.from_pretrained(result.folder).get_vocab()
    assert result.tokens_after == len(known) <= 12
    assert "fox" in known
    assert "capital" not in known
    assert_same(folder, result.folder, ["fox fox", "fox"])
    assert result.unknown_after > result.unknown_before == 0.0


def test_shares_are_those_of_the_eval_rows(tmp_path):
    """Counted with transformers' own tokenizers."""
    folder = build(tmp_path / "model", layers=1)
    result = prune(folder)

    def tokens(place: Path) -> list[list[str]]:
        core = AutoTokenizer.from_pretrained(place)
        return [core.tokenize(text) for text in SENTENCES]

    before, after = tokens(folder), tokens(result.folder)
    flat = [token for text in after for token in text]
    assert result.unknown_after == pytest.approx(flat.count("[UNK]") / len(flat))
    assert result.same_rows == np.mean([answered == other for answered, other in zip(before, after, strict=True)])
    assert json.loads(json.dumps(result.as_json()))["tokens_after"] == result.tokens_after


def test_notes_go_along_and_the_model_is_left_alone(tmp_path):
    folder = build(tmp_path / "model", layers=1)
    settings = {"name": "sequence_classification", "max_seq_length": 40, "metric": "macro_f1"}
    (folder / NOTES).write_text(json.dumps({"task": settings, "score": {"value": 0.9}, "files": []}))
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = prune(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
    task = open_folder(result.folder).task
    assert (task.max_seq_length, task.metric, result.positions_after) == (40, "macro_f1", 40)
    notes = json.loads((result.folder / NOTES).read_text())
    assert "score" not in notes
    assert prune(folder, overwrite=True).tokens_after == result.tokens_after  # the folder is known as Tersely's own


def test_weights_in_parts_pickled_and_with_leftovers_are_read(tmp_path):
    """A sharded folder, a .bin, buffers of old checkpoints and the decoder that pretraining left behind."""
    folder = build(tmp_path / "model", layers=1)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    words = tensors["bert.embeddings.word_embeddings.weight"]
    tensors |= {
        "bert.embeddings.position_ids": torch.arange(96)[None],
        "cls.predictions.decoder.weight": words,
        "cls.predictions.bias": torch.arange(float(len(words))),
    }
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    first = prune(folder, max_seq_length=LENGTH)
    cut = safetensors.torch.load_file(first.folder / "model.safetensors")
    assert cut["bert.embeddings.position_ids"].tolist() == [list(range(LENGTH))]
    assert torch.equal(cut["cls.predictions.decoder.weight"], cut["bert.embeddings.word_embeddings.weight"])
    assert torch.equal(words[cut["cls.predictions.bias"].long()], cut["cls.predictions.decoder.weight"])
    assert_same(folder, first.folder, KEPT)

    (folder / "pytorch_model.bin").unlink()
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        safetensors.torch.save_file({name: tensors[name].clone() for name in part}, folder / f"m-{number}.safetensors")
    index = {name: f"m-{place % 2}.safetensors" for place, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    again = prune(folder, max_seq_length=LENGTH, overwrite=True)
    for name, tensor in safetensors.torch.load_file(again.folder / "model.safetensors").items():
        assert torch.equal(tensor, cut[name])


def test_deberta_with_a_table_keeps_its_distances(tmp_path):
    """Its distances are measured by the table's length unless the config says otherwise: so it must."""
    folder = build(tmp_path / "model", "deberta_v2", layers=1, position_biased_input=True, position_buckets=-1)
    result = prune(folder, max_seq_length=LENGTH)
    assert (result.positions_before, result.positions_after) == (96, LENGTH)
    assert_same(folder, result.folder, KEPT)


def change(path: Path, **settings: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
