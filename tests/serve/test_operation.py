"""A server as its operator sees it: signals, workers, metrics, overload, and what it says of itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving import in_process, in_thread
from tersely.serve.server_options import Limits

BODY = {"data": {"text": "a quick fox"}}


class Slow:
    """A real engine that takes its time."""

    def __init__(self, engine, seconds=0.05):
        self.engine, self.seconds = engine, seconds

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def run(self, batch):
        time.sleep(self.seconds)
        return self.engine.run(batch)


def numbers(server):
    """Samples of /metrics by name and labels."""
    text = server.ask("/metrics").body.decode()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def children(pid):
    lists = [task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(word) for text in lists for word in text.split()]


def workers(pid):
    """Children that serve: they have loaded the engine."""
    return [child for child in children(pid) if "onnxruntime" in _maps(child)]


def _maps(pid):
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def test_models_say_what_they_are(server, folders):
    served = {model["name"]: model for model in server.ask("/models").json}
    assert list(served) == list(folders)
    assert served["text"]["labels"] == ["bad", "fair", "good"]
    assert [served[kind]["inputs"] for kind in ("text", "tags", "question")] == [
        ["text", "text_pair"], ["text"], ["question", "context"],
    ]  # fmt: skip
    assert {(model["engine"], model["precision"]) for model in served.values()} == {("onnxruntime", "fp32")}


def test_health_is_told(server):
    assert server.ask("/healthz").json == {"status": "ok"}
    assert server.ask("/readyz").json == {"ready": True}


def test_metrics_count_what_happened(folders):
    with in_thread({"text": folders["text"], "tags": folders["tags"]}) as server:
        for _ in range(3):
            server.ask("/models/text", BODY)
        server.ask("/models/text", {"data": {"text": ["a", "b"]}})
        server.ask("/models/text", b"nonsense")
        server.ask("/models/nope", BODY)
        found = numbers(server)
    assert found['tersely_requests_total{model="text",status="200"}'] == 4
    assert found['tersely_requests_total{model="text",status="422"}'] == 1
    assert found['tersely_errors_total{model="text"}'] == 1
    assert found['tersely_errors_total{model="tags"}'] == 0
    assert found['tersely_batch_rows_sum{model="text"}'] == 5
    assert found['tersely_request_seconds_count{model="text"}'] == 5
    assert found['tersely_queue_texts{model="text"}'] == 0
    assert not any("nope" in name for name in found)


def test_overload_is_refused_at_once_and_passes(folders):
    limits = Limits(max_queue=4, max_texts=1)
    with in_thread({"text": folders["text"]}, limits, engine=Slow) as server:
        with ThreadPoolExecutor(24) as clients:
            said = list(clients.map(lambda _: server.ask("/models/text", BODY), range(96)))
        refused = [answer for answer in said if answer.status == 503]
        assert {answer.status for answer in said} == {200, 503}
        assert all(answer.headers["retry-after"] == "1" for answer in refused)
        # The server's own time: how long this machine takes to let clients run is another matter.
        assert max(float(answer.headers["x-tersely-milliseconds"]) for answer in refused) < 50
        assert server.ask("/models/text", BODY).status == 200
        assert numbers(server)['tersely_requests_total{model="text",status="503"}'] == len(refused)


def test_draining_answers_what_was_taken(folders):
    """Clients ask without a pause while the server ends: every request that was sent whole is answered."""
    answered, lost = [], []
    with in_thread({"text": folders["text"]}, engine=lambda engine: Slow(engine, 0.01)) as server:

        def ask_until_closed():
            import http.client

            connection = http.client.HTTPConnection(*server.place, timeout=30)
            try:
                connection.connect()
                while True:
                    connection.request("POST", "/models/text", b'{"data": {"text": "a"}}')
                    answer = connection.getresponse()
                    answer.read()
                    answered.append(answer.status)
                    if answer.getheader("connection") == "close":
                        return
            except OSError as error:
                lost.append(error)

        clients = [threading.Thread(target=ask_until_closed) for _ in range(8)]
        for client in clients:
            client.start()
        while len(answered) < 40:
            time.sleep(0.005)
    for client in clients:
        client.join(30)
    assert not lost
    assert set(answered) == {200}


@pytest.mark.slow
def test_sigterm_ends_the_command_in_order(folders):
    with in_process(folders["text"], "--workers", "1") as (server, process):
        with ThreadPoolExecutor(4) as clients:
            said = [clients.submit(server.ask, "/models/text", BODY) for _ in range(8)]
            assert {answer.result().status for answer in said} == {200}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


EARLY = """
import os, signal, sys
from tersely.serve.run import bind, last_signals, open_models, serve
from tersely.serve.server_options import ServerOptions

settings = ServerOptions({"text": sys.argv[1]}, "127.0.0.1", 0, "onnxruntime", 1, 1, 1)
models = open_models(settings)
with last_signals() as early:
    os.kill(os.getpid(), signal.SIGTERM)
    serve(models, settings, bind("127.0.0.1", 0), lambda: None, early_signals=early)
"""


@pytest.mark.slow
def test_a_signal_that_comes_before_the_server_is_there_ends_it(folders):
    done = subprocess.run([sys.executable, "-c", EARLY, folders["text"]], timeout=30, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_workers_share_the_port_and_one_that_dies_is_replaced(folders):
    with in_process(folders["text"], folders["tags"], "--workers", "2", "--threads", "1") as (server, process):
        before = workers(server.pid)
        assert len(before) == 2
        with ThreadPoolExecutor(8) as clients:
            said = list(clients.map(lambda _: server.ask("/models/text", BODY).status, range(40)))
        assert set(said) == {200}
        assert numbers(server)['tersely_requests_total{model="text",status="200"}'] == 40
        os.kill(before[0], signal.SIGKILL)
        for _ in range(20):
            assert server.ask("/models/text", BODY).status == 200  # by the other one
        deadline = time.monotonic() + 60
        while len(set(workers(server.pid)) - set(before)) < 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(set(workers(server.pid)) - set(before)) == 1
        assert (
            numbers(server)['tersely_requests_total{model="text",status="200"}'] == 60
        )  # nothing counted is forgotten
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert re.search(r"worker \d+ ended \(exit code -9\): a new one starts", process.stderr.read())


@pytest.mark.slow
def test_workers_end_with_the_first_process(folders):
    with in_process(folders["text"], "--workers", "2", "--threads", "1") as (server, process):
        left = workers(server.pid)
        assert len(left) == 2
        assert all(_maps(pid) for pid in left)
        process.kill()
        process.wait(30)
        deadline = time.monotonic() + 60
        while any(_maps(pid) for pid in left) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(_maps(pid) for pid in left)
