"""Converted models against Paddle itself: checkpoints that PaddleNLP writes, logits that Paddle computes.

    python benchmarks/paddle_parity.py make FOLDER       # where paddlepaddle and paddlenlp are installed
    python benchmarks/paddle_parity.py compare FOLDER    # where Tersely and transformers are

Models of random weights, two layers; rows with padding, two token types. Prints the largest difference per model.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(59)))
COMMON = {
    "vocab_size": len(TOKENS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 40, "pad_token_id": 0, "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "hidden_act": "gelu",
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "Ernie": {"type_vocab_size": 4, "use_task_id": True, "task_type_vocab_size": 3, "hidden_act": "relu"},
    "Bert": {"type_vocab_size": 2},
    "Roberta": {"type_vocab_size": 2, "cls_token_id": 2, "layer_norm_eps": 1e-3},
    "Electra": {"type_vocab_size": 2, "embedding_size": 16, "layer_norm_eps": 1e-3},
}


def make(folder: Path) -> None:
    """Let PaddleNLP write a folder for each class, and keep what the model gives for a batch."""
    paddle, paddlenlp = importlib.import_module("paddle"), importlib.import_module("paddlenlp")
    library = importlib.import_module("paddlenlp.transformers")
    print(f"paddlepaddle {paddle.__version__}, paddlenlp {paddlenlp.__version__}")
    draw = np.random.default_rng(0)
    ids = draw.integers(5, len(TOKENS), (3, 11))
    ids[:, 0], ids[1, 7:] = 2, 0
    types = np.broadcast_to(np.arange(11) > 4, ids.shape).astype(np.int64)
    for family, more in CASES.items():
        for head in HEADS:
            model = _build(library, family, head, {**COMMON, **more})
            for name, parameter in model.named_parameters():
                mean = 1.0 if len(parameter.shape) == 1 and name.endswith("weight") else 0.0
                spread = 0.3 if len(parameter.shape) > 1 else 0.1
                parameter.set_value(draw.normal(mean, spread, parameter.shape).astype(np.float32))
            model.eval()
            place = folder / f"{family}{head}"
            model.save_pretrained(str(place))
            if (place / "config.json").is_file():  # PaddleNLP leaves the version empty, and a RobertaModel needs it
                config = json.loads((place / "config.json").read_text(encoding="utf-8"))
                config["paddlenlp_version"] = paddlenlp.__version__
                (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
            (place / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
            result = model(input_ids=paddle.to_tensor(ids), token_type_ids=paddle.to_tensor(types))
            outputs = result if isinstance(result, tuple | list) else [result]
            saved = {f"output_{i}": output.numpy() for i, output in enumerate(outputs)}
            np.savez(place / "paddle.npz", ids=ids, types=types, **saved)


def _build(library: Any, family: str, head: str, settings: dict[str, Any]) -> Any:
    kind = getattr(library, family + head)
    labels = {"num_classes": 3} if head in HEADS[1:3] else {}
    if getattr(kind, "config_class", None) is not None:
        return kind(kind.config_class(**settings, **labels))
    encoder = getattr(library, f"{family}Model")(**settings)  # PaddleNLP before its configs had classes
    return kind(encoder, **labels) if head != "Model" else encoder


def compare(folder: Path) -> None:
    """Convert each folder, run it in transformers on the same batch, print how far the two are apart."""
    import torch
    import transformers

    from tersely.models.convert import convert_paddle

    worst = 0.0
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        kept = np.load(place / "paddle.npz")
        real = kept["ids"] != 0
        with tempfile.TemporaryDirectory() as scratch:
            done = convert_paddle(place, Path(scratch) / "out")
            model = getattr(transformers, done.architecture).from_pretrained(Path(scratch) / "out").eval()
        batch = {"input_ids": kept["ids"], "token_type_ids": kept["types"], "attention_mask": real.astype(np.int64)}
        with torch.no_grad():
            result = model(**{name: torch.from_numpy(array) for name, array in batch.items()}).to_tuple()
        apart = []
        for i, output in enumerate(result):
            difference = np.abs(output.numpy() - kept[f"output_{i}"])
            apart.append(float(difference[real].max() if difference.shape[:2] == real.shape else difference.max()))
        worst = max(worst, *apart)
        print(f"{place.name:32} opens as {done.architecture:32} largest difference {max(apart):.1e}")
    print(f"largest of all: {worst:.1e}")


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
