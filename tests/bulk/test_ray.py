"""Workers on a Ray cluster: the same bytes, whoever dies in the middle."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny_artifacts
from bulk_rows import records
from commands import Tersely
from tersely import runtime
from tersely.bulk import Job, answered, answerer
from tersely.bulk.ray_workers import RayActors
from tersely.data import Part

Artifact = Callable[[str], Path]
pytestmark = pytest.mark.long
TASK = tiny_artifacts.TASKS["text"]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two machines of one core each, as far as Ray can tell; they share no cache with us."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("TERSELY_CACHE", str(tmp_path / "there"))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # 15 by default: beside other tests, workers would get no time
    both = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    both.add_node(num_cpus=1)
    yield both
    both.shutdown()


def parts(count: int) -> list[Part]:
    texts = [row["text"] for row in records("text", 40 * count)]
    return [Part(i, TASK.examples(texts[40 * i : 40 * i + 40]), f"rows:{40 * i + 1}") for i in range(count)]


def test_command_on_ray_writes_the_same_bytes(
    predict: Tersely, artifact: Artifact, small_parts: int, tmp_path: Path, cluster: Any
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in records("text", 100)))
    assert predict(artifact("text"), file, "--output", tmp_path / "one.csv", "--threads", "1").code == 0
    for name, more in (("two.csv", []), ("three.csv", ["--workers", "1"])):
        shown = predict(artifact("text"), file, "--output", tmp_path / name, "--ray", cluster.address, *more)
        assert shown.code == 0, shown.err
        assert (tmp_path / name).read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert len(list((tmp_path / "there" / "artifacts").glob("[!.]*"))) == 1  # one folder, whoever was first
    shown = predict(
        artifact("text"), file, "--output", tmp_path / "four.csv", "--ray", cluster.address, "--threads", "9"
    )
    assert shown.code == 2
    assert "No machine of the cluster has 9 cores; the largest has 1 (option '--threads')." in shown.err


def test_actor_killed_in_the_middle_loses_nothing(artifact: Artifact, cluster: Any) -> None:
    """First one worker's process, then a whole machine."""
    all_parts = parts(24)
    team = RayActors(Job(artifact("text"), TASK, "jsonl", "onnxruntime"), cluster.address)
    found: dict[int, bytes] = {}
    for part, content in answered(team, 2, all_parts):
        assert part.index not in found
        found[part.index] = content
        if len(found) == 5:
            os.kill(actors_of_ours()[0], signal.SIGKILL)
        if len(found) == 12:
            cluster.remove_node(sorted(cluster.worker_nodes, key=str)[0], allow_graceful=False)
    answer = answerer(runtime.load(artifact("text"), "onnxruntime", 1), "jsonl")
    assert found == {part.index: answer(part.examples) for part in all_parts}


def actors_of_ours() -> list[int]:
    """Processes of our actors that descend from this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            named = b"ray::_Actor" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if named and os.getpid() in ancestors(int(folder.name)):
            found.append(int(folder.name))
    return sorted(found)


def ancestors(process: int) -> set[int]:
    found: set[int] = set()
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(process)
    return found


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:9", "127.0.0.1:9: No Ray cluster is found: Connection refused (option '--ray')."),
        ("nonsense", "nonsense: No Ray cluster is found: that is no address (option '--ray')."),
    ],
)
def test_cluster_that_is_not_there_is_told_at_once(
    address: str, said: str, predict: Tersely, artifact: Artifact, tmp_path: Path
) -> None:
    shown = predict(artifact("text"), "--output", tmp_path / "out.jsonl", "--ray", address, stdin="fine\n")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert said in shown.err
    assert list(tmp_path.iterdir()) == []
