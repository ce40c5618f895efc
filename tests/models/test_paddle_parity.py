"""What transformers computes from a converted folder is what Paddle's arrays say, by a forward in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from paddle_checkpoints import ATTENTION_HEADS, CLASSES, HEADS, LABELS, build_paddle
from paddle_numpy import forward
from tersely.models.convert import convert_paddle

EPSILON = {"ernie": 1e-12, "bert": 1e-3, "roberta": 1e-3, "electra": 1e-3}
"""Of the settings that the checkpoints have; ERNIE does not look at them."""
IDS = np.array([[2, 5, 6, 7, 8, 9, 3], [2, 6, 10, 3, 0, 0, 0]])
TYPES = np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]])


def run_transformers(folder, head):
    import torch
    import transformers

    auto = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")
    model, loading = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = {"input_ids": IDS, "token_type_ids": TYPES, "attention_mask": (IDS != 0).astype(np.int64)}
    with torch.no_grad():
        return model.eval()(**{name: torch.from_numpy(array) for name, array in batch.items()})


def largest_difference(output, expected, head):
    real = IDS != 0
    if head == "QuestionAnswering":
        both = np.stack([output.start_logits.numpy(), output.end_logits.numpy()], -1)
        return np.abs(both - expected["logits"])[real].max()
    if head == "TokenClassification":
        return np.abs(output.logits.numpy() - expected["logits"])[real].max()
    if head == "SequenceClassification":
        return np.abs(output.logits.numpy() - expected["logits"]).max()
    far = np.abs(output.last_hidden_state.numpy() - expected["hidden"])[real].max()
    return max(far, np.abs(output.pooler_output.numpy() - expected["pooled"]).max() if "pooled" in expected else 0)


def check(tmp_path, family, head, *, opens=None, epsilon=None, first_position=0, activation="gelu", **how):
    arrays = build_paddle(tmp_path / "paddle", family, head, **how)
    done = convert_paddle(tmp_path / "paddle", tmp_path / "out")
    assert done.architecture == CLASSES[opens or family] + (f"For{head}" if head else "Model")
    expected = forward(
        arrays, family, head, IDS, TYPES, epsilon=epsilon or EPSILON[family],
        first_position=first_position, activation=activation, attention_heads=ATTENTION_HEADS,
    )  # fmt: skip
    assert largest_difference(run_transformers(tmp_path / "out", head), expected, head) < 1e-5
    return done


@pytest.mark.parametrize("head", [*HEADS, None])
@pytest.mark.parametrize("family", CLASSES)
def test_flat_config_of_each_family_and_head(family, head, tmp_path):
    activation = "relu" if family == "ernie" else "gelu"
    done = check(tmp_path, family, head, first_position=1 if family == "roberta" else 0, activation=activation)
    assert done.labels == (LABELS if head in HEADS[:2] else ())


@pytest.mark.parametrize("head", [*HEADS, None])
@pytest.mark.parametrize("family", CLASSES)
def test_nested_config_of_each_family_and_head(family, head, tmp_path):
    roberta = {"before_2_5": True, "opens": "bert"} if family == "roberta" else {}  # its positions began with 0
    epsilon = 1e-12 if family == "electra" and head else None  # its heads did not look at the setting then
    activation = "relu" if family == "ernie" else "gelu"
    form = "arrays" if head == HEADS[0] else "tuples"
    done = check(tmp_path, family, head, nested=True, epsilon=epsilon, activation=activation, form=form, **roberta)
    assert done.labels == (("LABEL_0", "LABEL_1", "LABEL_2") if head in HEADS[:2] else ())


@pytest.mark.parametrize("head", HEADS)
def test_byte_level_roberta_before_2_5_keeps_positions_behind_the_padding(head, tmp_path):
    check(tmp_path, "roberta", head, nested=True, before_2_5=True, cls_token_id=0, first_position=1)


def test_ernie_without_token_types(tmp_path):
    check(tmp_path, "ernie", HEADS[0], type_vocab_size=0, use_task_id=False, activation="relu")


def test_roberta_encoder_of_2_4_begins_with_position_0(tmp_path):
    check(tmp_path, "roberta", None, opens="bert", paddlenlp_version="2.4.9")
