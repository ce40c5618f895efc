"""`load` and `predict`: the same answers whatever the batch, and those of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from models import HEADS, SENTENCES
from tersely import engines, runtime
from tersely.errors import UserError

pytestmark = pytest.mark.slow  # of the exports that the fixtures make

CLASSIFY, TAG, ASK = HEADS
CONTEXT = " ".join(SENTENCES)
INPUTS = {
    CLASSIFY: [*SENTENCES, *zip(SENTENCES[:4], SENTENCES[4:], strict=True), "", {"text": "a", "text_pair": "fox"}],
    TAG: [*SENTENCES, CONTEXT, SENTENCES[0].split(), list(SENTENCES[6]), "", []],
    ASK: [*((question, CONTEXT) for question in SENTENCES[:4]), ("who?", SENTENCES[7]), ("who?", "")],
}
ENGINES = [name for name in ("onnxruntime", "openvino") if name in engines.installed()]


@pytest.fixture(scope="module")
def predictor(artifact_folder):
    made = {}

    def load(head, engine="onnxruntime"):
        if (head, engine) not in made:
            made[head, engine] = runtime.load(artifact_folder(head), engine, threads=1)
        return made[head, engine]

    return load


def flat(answer):
    """Texts and numbers of an answer, apart."""
    if isinstance(answer, dict):
        parts = [flat(value) for value in answer.values()]
    elif isinstance(answer, list):
        parts = [flat(value) for value in answer]
    else:
        return ([], [answer]) if isinstance(answer, float) else ([answer], [])
    return [text for part in parts for text in part[0]], [number for part in parts for number in part[1]]


def assert_same(answers, others):
    for answer, other in zip(answers, others, strict=True):
        (texts, numbers), (other_texts, other_numbers) = flat(answer.as_json()), flat(other.as_json())
        assert texts == other_texts
        assert numbers == pytest.approx(other_numbers, abs=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("head", HEADS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_answers_do_not_depend_on_batches_or_order(predictor, head, engine, data):
    model, inputs = predictor(head, engine), INPUTS[head]
    alone = [model.predict([item])[0] for item in inputs]
    order = data.draw(st.permutations(range(len(inputs))))
    size, tokens = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([1, 64, 300, 16_384]))
    other = runtime.Predictor(model.task, model.encoder, model.engine, size, tokens)
    assert_same([alone[i] for i in order], other.predict([inputs[i] for i in order]))
    assert_same(alone, model.predict(inputs, batch_size=size))


@pytest.mark.parametrize("engine", ENGINES)
def test_classification_equals_transformers(predictor, model_folder, engine):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder(CLASSIFY))
    module = transformers.AutoModelForSequenceClassification.from_pretrained(model_folder(CLASSIFY)).eval()
    pairs = list(zip(SENTENCES[:4], SENTENCES[4:], strict=True))
    for inputs, fed in ((list(SENTENCES), (list(SENTENCES),)), (pairs, tuple(map(list, zip(*pairs, strict=True))))):
        length = predictor(CLASSIFY, engine).task.max_seq_length
        batch = tokenizer(*fed, padding=True, truncation=True, max_length=length, return_tensors="pt")
        with torch.no_grad():
            chances = torch.softmax(module(**batch).logits, -1).numpy()
        answers = predictor(CLASSIFY, engine).predict(inputs)
        assert [answer.label for answer in answers] == [module.config.id2label[i] for i in chances.argmax(1)]
        assert np.abs([list(answer.scores.values()) for answer in answers] - chances).max() < 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_tags_equal_transformers(predictor, model_folder, engine):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder(TAG))
    module = transformers.AutoModelForTokenClassification.from_pretrained(model_folder(TAG)).eval()
    for text in SENTENCES[:6]:
        words = text.split()
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            chances = torch.softmax(module(**batch).logits[0], -1).numpy()
        owners = batch.word_ids()
        first = [owners.index(word) for word in range(len(words))]
        (answer,) = predictor(TAG, engine).predict([words])
        assert list(answer.tags) == [module.config.id2label[i] for i in chances[first].argmax(1)]
        assert answer.scores == pytest.approx(chances[first].max(1), abs=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_equal_transformers(predictor, model_folder, engine):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder(ASK))
    module = transformers.AutoModelForQuestionAnswering.from_pretrained(model_folder(ASK)).eval()
    task = predictor(ASK, engine).task
    for context in SENTENCES:
        batch = tokenizer("who is the fox?", context, return_tensors="pt", return_offsets_mapping=True)
        offsets, owners = batch.pop("offset_mapping")[0].tolist(), np.array(batch.sequence_ids()) == 1
        with torch.no_grad():
            output = module(**batch)
        sums = output.start_logits[0][:, None] + output.end_logits[0][None, :]
        allowed = torch.ones_like(sums).triu() - torch.ones_like(sums).triu(task.max_answer_length)
        allowed *= torch.tensor(owners)[:, None] * torch.tensor(owners)[None, :]
        start, end = divmod(int(sums.masked_fill(allowed == 0, -np.inf).argmax()), len(offsets))
        (answer,) = predictor(ASK, engine).predict([("who is the fox?", context)])
        assert (answer.start, answer.end) == (offsets[start][0], offsets[end][1])
        assert answer.text == context[answer.start : answer.end]


def test_single_inputs_give_a_list_of_one(predictor):
    classify, tag, ask = (predictor(head) for head in HEADS)
    assert_same(classify.predict("the fox"), classify.predict(["the fox"]))
    assert_same(classify.predict(("the", "fox")), classify.predict([("the", "fox")]))
    assert_same(classify.predict({"text": "the", "text_pair": "fox"}), classify.predict([("the", "fox")]))
    assert_same(tag.predict("the fox"), tag.predict(["the fox"]))
    assert_same(tag.predict(("the", "fox")), tag.predict([["the", "fox"]]))
    assert_same(ask.predict(("who?", "the fox")), ask.predict([{"question": "who?", "context": "the fox"}]))


def test_many_inputs_may_come_from_anything_that_iterates(predictor):
    model = predictor(CLASSIFY)
    expected = model.predict(list(SENTENCES))
    assert_same(model.predict(iter(SENTENCES)), expected)
    assert_same(model.predict(np.array(SENTENCES)), expected)
    assert model.predict([]) == []


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("inputs", [None, 7, b"bytes", [b"bytes"], [None], [7], [{}], {"nothing": "known"}])
def test_bad_inputs_are_refused(predictor, head, inputs):
    with pytest.raises(UserError, match=r"must be a"):
        predictor(head).predict(inputs)


@pytest.mark.parametrize("size", [0, -1])
def test_batches_of_no_rows_are_refused(predictor, size):
    model = predictor(CLASSIFY)
    with pytest.raises(UserError, match=f"'batch_size' option must be at least 1. Got {size}"):
        model.predict("text", batch_size=size)
    with pytest.raises(UserError, match="'max_batch_tokens' option must be at least 1"):
        runtime.Predictor(model.task, model.encoder, model.engine, max_batch_tokens=size)


def test_long_sentence_is_tagged_to_its_end_with_all_engines_alike(predictor):
    text = " ".join([CONTEXT] * 3)
    answers = [predictor(TAG, engine).predict(text)[0] for engine in ENGINES]
    assert "".join(answers[0].words) == "".join(text.split())
    assert_same(answers[:1] * len(answers), answers)
    assert all(text[entity.start : entity.end] == entity.text for entity in answers[0].entities)
    assert max(entity.end for entity in answers[0].entities) > len(text) // 2


def test_load_refuses_an_engine_that_the_artifact_does_not_have(artifact_folder):
    with pytest.raises(UserError, match=r"no graph for engine 'torch'.*It has: onnxruntime, openvino"):
        runtime.load(artifact_folder(CLASSIFY), "torch")


def test_load_hands_on_threads_and_providers(artifact_folder):
    model = runtime.load(artifact_folder(CLASSIFY), "onnxruntime", 1, providers=["CPUExecutionProvider"])
    assert model.engine.threads == 1
    with pytest.raises(UserError, match="no provider 'CUDA"):
        runtime.load(artifact_folder(CLASSIFY), "onnxruntime", providers=["CUDAExecutionProvider_"])
    with pytest.raises(UserError, match="threads must be at least 1"):
        runtime.load(artifact_folder(CLASSIFY), threads=0)


def test_auto_takes_the_first_installed_engine(artifact_folder):
    assert runtime.load(artifact_folder(CLASSIFY)).engine.name == "onnxruntime"
