"""OpenVINO's own form (IR): `openvino_model.xml` with its weights in `openvino_model.bin`.

The names are those that optimum looks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...artifact import Artifact, Graph
from ...errors import Failure


@dataclass(frozen=True)
class OpenVinoLayout:
    """A folder that `openvino.Core().read_model` and OpenVINO's own tools load. INT8 weights stay INT8."""

    engine: str = "openvino"
    graph: str = "openvino_model.xml"

    def place(self, output_dir: Path) -> Path:
        """The output folder itself."""
        return output_dir

    def write(self, opened: Artifact, graph: Graph, folder: Path) -> tuple[str, ...]:
        """Read the graph as OpenVINO does and save what it read."""
        import openvino

        path = opened.path(graph.path)
        try:
            model = openvino.Core().read_model(str(path))
            _number(model)
            # By default weights are rounded to FP16, and answers change.
            openvino.save_model(model, str(folder / self.graph), compress_to_fp16=False)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise Failure(f"OpenVINO cannot convert this graph: {reason}", where=str(path)) from error
        return (Path(self.graph).with_suffix(".bin").as_posix(),)


def _number(model: Any) -> None:
    """Nodes that have no name in the graph get one by their place.

    OpenVINO numbers them through the whole process, so that a second export would give other bytes.
    """
    for place, node in enumerate(model.get_ordered_ops()):
        kind, name = node.get_type_name(), node.get_friendly_name()
        if name.startswith(f"{kind}_") and name.removeprefix(f"{kind}_").isdigit():
            node.set_friendly_name(f"{kind}_{place}")
