"""The batcher: rows of one request and of many, a bounded queue, time-outs, and failures that stay where they are."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from models import SENTENCES
from tersely import runtime
from tersely.serve.batching import Batcher
from tersely.serve.request import Refusal
from tersely.serve.server_options import Limits


class Gate:
    """A real engine behind a gate; `shapes` are those of the batches that went through."""

    def __init__(self, engine):
        self.engine, self.opened, self.entered, self.shapes = engine, threading.Event(), threading.Event(), []
        self.batches = []
        self.fails = lambda batch: False

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def run(self, batch):
        self.entered.set()
        assert self.opened.wait(30)
        self.shapes.append(batch["input_ids"].shape)
        self.batches.append(batch["input_ids"].tolist())
        if self.fails(batch):
            raise RuntimeError("the engine broke")
        return self.engine.run(batch)


@pytest.fixture
def make(folders):
    made = []

    def build(kind="text", **limits):
        loaded = runtime.load(folders[kind], threads=1)
        gate = Gate(loaded.engine)
        batcher = Batcher(replace(loaded, engine=gate), Limits(**{"max_texts": 1, **limits}))
        made.append((gate, batcher))
        return loaded, gate, batcher

    yield build
    for gate, batcher in made:
        gate.opened.set()
        batcher.close()


def run(story):
    return asyncio.run(asyncio.wait_for(story, 30))


async def entered(gate):
    while not gate.entered.is_set():
        await asyncio.sleep(0.001)


def test_what_waits_goes_in_together_and_each_gets_its_own(make):
    predictor, gate, batcher = make()

    async def story():
        jobs = [predictor.task.examples([text]) for text in SENTENCES]
        first = asyncio.ensure_future(batcher.answer(predictor.task, jobs[0]))
        await entered(gate)
        others = [asyncio.ensure_future(batcher.answer(predictor.task, job)) for job in jobs[1:]]
        await asyncio.sleep(0)
        assert batcher.waiting == len(jobs)
        gate.opened.set()
        return [(await answer)[0] for answer in (first, *others)]

    answers = run(story())
    for answer, expected in zip(answers, predictor.predict(list(SENTENCES)), strict=True):
        assert answer.score == pytest.approx(expected.score, abs=1e-5)
        assert answer.label == expected.label
    assert gate.shapes[0][0] == 1  # the lone one did not wait for company
    assert len(gate.shapes) < len(SENTENCES)
    assert batcher.waiting == 0


def test_a_full_queue_refuses_at_once_and_recovers(make):
    predictor, gate, batcher = make(max_queue=3)

    async def story():
        job = predictor.task.examples(["a fox"])
        taken = [asyncio.ensure_future(batcher.answer(predictor.task, job)) for _ in range(3)]
        await entered(gate)
        with pytest.raises(Refusal) as refused:
            await batcher.answer(predictor.task, job)
        assert refused.value.status == 503
        assert refused.value.headers["retry-after"] == "1"
        gate.opened.set()
        await asyncio.gather(*taken)
        return await batcher.answer(predictor.task, job)

    assert run(story())[0].label == predictor.predict("a fox")[0].label


def test_who_waits_too_long_is_told_and_not_computed(make):
    predictor, gate, batcher = make(timeout=0.05)

    async def story():
        job = predictor.task.examples(["a fox"])
        first = asyncio.ensure_future(batcher.answer(predictor.task, job))
        await entered(gate)
        second = asyncio.ensure_future(batcher.answer(predictor.task, job))
        found = await asyncio.gather(first, second, return_exceptions=True)
        gate.opened.set()
        return found

    assert [error.status for error in run(story())] == [504, 504]
    batcher.close()
    assert gate.shapes == [gate.shapes[0]]  # only what was in the engine already
    assert batcher.waiting == 0


def test_a_broken_batch_fails_its_requests_alone(make):
    predictor, gate, batcher = make()
    gate.opened.set()
    gate.fails = lambda batch: batch["input_ids"].shape[1] > 16

    async def story():
        batches = [predictor.task.examples([text]) for text in ("a fox", "fox " * 40, "a dog")]
        return await asyncio.gather(
            *(batcher.answer(predictor.task, examples) for examples in batches), return_exceptions=True
        )

    short, long, other = run(story())
    assert long.status == 500
    assert "engine broke" not in long.line
    assert short[0].label
    assert other[0].label


def test_a_request_that_cannot_be_tokenized_does_not_take_others_with_it(make):
    predictor, gate, batcher = make("question")
    task = replace(predictor.task, max_seq_length=24)

    async def story():
        bad, good = (task.examples([(question, SENTENCES[3])]) for question in ("who? " * 60, "who?"))
        first = asyncio.ensure_future(batcher.answer(task, good))
        await entered(gate)
        both = [asyncio.ensure_future(batcher.answer(task, examples)) for examples in (bad, good)]
        gate.opened.set()
        return await asyncio.gather(first, *both, return_exceptions=True)

    first, refused, answered = run(story())
    assert refused.status == 422
    assert "no room" in refused.line
    assert answered[0].text == first[0].text


def test_a_request_with_many_rows_lets_others_in_between(make, monkeypatch):
    monkeypatch.setattr("tersely.serve.batching.YOUNGER", 10.0)  # however slow this machine is
    predictor, gate, batcher = make(max_queue=256, max_texts=256)

    async def story():
        many = asyncio.ensure_future(batcher.answer(predictor.task, predictor.task.examples(["fox"] * 200)))
        await entered(gate)
        single = asyncio.ensure_future(batcher.answer(predictor.task, predictor.task.examples(["dog"])))
        await asyncio.sleep(0.001)
        gate.opened.set()
        await asyncio.gather(single, many)

    run(story())
    (dog,) = predictor.task.features(predictor.task.examples(["dog"]), predictor.encoder)
    found = [any(row[: len(dog)] == dog.input_ids.tolist() for row in batch) for batch in gate.batches]
    assert found.index(True) == 1  # behind what was in the engine already
    assert len(found) > 10


def test_streams_run_at_once_and_share_a_request(folders):
    predictor = runtime.load(folders["text"], threads=1, streams=2)
    both = threading.Barrier(2, timeout=30)

    class Meeting(Gate):
        """Lets nobody through alone."""

        def run(self, batch):
            both.wait()
            return self.engine.run(batch)

    met = replace(predictor, engine=Meeting(predictor.engine))
    batcher = Batcher(met, Limits(), streams=2)
    texts = ["fox"] * 16 + ["dog"] * 16

    async def story():
        return await batcher.answer(predictor.task, predictor.task.examples(texts))

    answers = run(story())
    batcher.close()
    expected = predictor.predict(texts)
    assert [answer.score for answer in answers] == pytest.approx([answer.score for answer in expected], abs=1e-5)


def test_closing_answers_what_waits(make):
    predictor, gate, batcher = make()

    async def story():
        job = predictor.task.examples(["a fox"])
        taken = [asyncio.ensure_future(batcher.answer(predictor.task, job)) for _ in range(5)]
        await entered(gate)
        threading.Timer(0.05, gate.opened.set).start()
        await asyncio.get_running_loop().run_in_executor(None, batcher.close)
        return await asyncio.gather(*taken)

    assert len(run(story())) == 5
