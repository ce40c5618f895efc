"""Small models, tokenizers and artifacts that all tests of a session share: an export takes five seconds and more."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exported_once import export_once, for_real, keeping
from made_once import made_once, shared
from models import build, build_tokenizer
from tersely_quickly import SECONDS
from unwatched import leave_exports_unwatched, repeats, unwatched

LABELS = {
    "SequenceClassification": ("bad", "fair", "good"),
    "TokenClassification": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "QuestionAnswering": (),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first: nothing long may be left to one worker at the end. Quick files fill the gaps."""
    slow = {str(item.path) for item in items if item.get_closest_marker("slow") or item.get_closest_marker("long")}
    items.sort(key=lambda item: ("tests/test_docs.py" not in item.nodeid, str(item.path) not in slow))


def pytest_collection_finish() -> None:
    """Test modules are imported now, and torch with them."""
    leave_exports_unwatched()
    export_once()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Some slow tests are not watched by coverage, and those of tracing trace."""
    with unwatched() if repeats(item) else nullcontext(), keeping(None) if for_real(item) else nullcontext():
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one worker has exported, the others find."""
    with keeping(shared(tmp_path_factory) / "exports"):
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same draws for a test whatever ran before it in its process."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files stay together, but for a few."""
    from scheduling import ByFile

    return ByFile(config, log)


@pytest.fixture(scope="session")
def short_timings() -> Iterator[None]:
    """For runs of compress: what is timed does not matter to tests; that it is timed does."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("evaluator", "shape_timer"):
            patch.setattr(f"tersely.compression.{name}.SECONDS", SECONDS)
        patch.setattr("tersely.compression.shape_timer.SHARES", ())
        yield


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A one-layer model by head and family, with labels that have names."""
    made: dict[tuple[str, str], Path] = {}

    def make(head: str = "SequenceClassification", family: str = "bert") -> Path:
        if (head, family) not in made:
            labels = LABELS[head]
            names: dict[str, Any] = {}
            if labels:
                names = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
            folder = tmp_path_factory.mktemp("models") / f"{family}-{head}"
            made[head, family] = build(folder, family, head, labels=len(labels), layers=1, **names)
        return made[head, family]

    return make


@pytest.fixture(scope="session")
def artifact_folder(model_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The artifact of such a model. Not to be written to: see `own_artifact`."""
    from tersely.deploy.from_model import write_artifact
    from tersely.models.folder import open_folder

    def make(head: str = "SequenceClassification", family: str = "bert") -> Path:
        def write(output: Path) -> None:
            write_artifact(open_folder(model_folder(head, family)), output)

        return made_once(tmp_path_factory, f"artifacts/{family}-{head}", write)

    return make


@pytest.fixture
def own_artifact(artifact_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of an artifact, to be damaged."""
    import shutil

    return Path(shutil.copytree(artifact_folder(), tmp_path / "artifact"))


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tokenizer of a family, without a model."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp("tokenizers") / family
            build_tokenizer(made[family], family)
        return made[family]

    return make


@pytest.fixture(scope="session")
def encoder_of(tokenizer_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    """Tersely's encoder over that tokenizer."""
    from tersely.tasks import Encoder

    made: dict[str, Encoder] = {}

    def make(family: str = "bert") -> Encoder:
        if family not in made:
            made[family] = Encoder.from_file(tokenizer_folder(family) / "tokenizer.json", pad_id=0)
        return made[family]

    return make


@pytest.fixture(scope="session")
def transformers_tokenizer(tokenizer_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    """What transformers makes of it: the reference."""
    made: dict[str, Any] = {}

    def make(family: str = "bert") -> Any:
        from transformers import PreTrainedTokenizerFast

        if family not in made:
            made[family] = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder(family))
        return made[family]

    return make


@pytest.fixture(scope="session")
def prunable(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A model of three layers with six heads of eight, 96 neurons, by family and head. Not to be written to."""
    made: dict[tuple[Any, ...], Path] = {}

    def make(family: str = "bert", head: str = "SequenceClassification", **config: Any) -> Path:
        key = (family, head, repr(sorted(config.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp("prunable") / f"{family}-{head}"
            made[key] = build(folder, family, head, hidden=48, heads=6, layers=3, std=0.2, **config)
        return made[key]

    return make
