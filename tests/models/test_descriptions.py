"""Every family is found, fits transformers' models, and proves itself; others are refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn

from models import FAMILIES as NAMES
from models import HEADS
from tersely.errors import UserError
from tersely.models.carve import locate, shape_of
from tersely.models.families import FAMILIES, Family, Stacked, find, register
from tersely.models.torch_folder import load_module
from tersely.testing import check_family

PLAIN = [(family, HEADS[0], {}) for family in NAMES]
VARIANTS = [
    *(("bert", head, {}) for head in HEADS[1:]),
    ("albert", HEADS[1], {}),
    ("modernbert", HEADS[1], {"attention_bias": True, "mlp_bias": True}),
    ("deberta_v2", HEADS[2], {"share_att_key": False}),
    ("deberta_v2", HEADS[1], {"share_att_key": False, "pos_att_type": ["c2p"]}),
    ("deberta_v2", HEADS[0], {"conv_kernel_size": 3, "conv_act": "gelu"}),
    ("deberta_v2", HEADS[0], {"relative_attention": False, "position_biased_input": True}),
    ("ernie", HEADS[0], {"use_task_id": True}),
    ("bert", HEADS[0], {"chunk_size_feed_forward": 5}),
]


@pytest.mark.parametrize(("family", "head", "config"), PLAIN, ids=str)
def test_description_proves_itself(prunable, family, head, config):
    model = load_module(prunable(family, head, **config))
    check_family(find(model), model)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "head", "config"), VARIANTS, ids=str)
def test_description_proves_itself_on_variants_of_the_family(prunable, family, head, config):
    model = load_module(prunable(family, head, **config))
    ids = torch.arange(5, 35).view(3, 10)  # chunks of five tokens divide its length
    check_family(find(model), model, {"input_ids": ids, "attention_mask": (ids % 10 < 8).long()})


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_description_proves_itself_on_a_config(family):
    settings = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "num_hidden_layers": 2}
    config = transformers.AutoConfig.for_model(family, vocab_size=60, pad_token_id=0, **settings)
    check_family(find(config), config)


def test_every_model_type_is_one_of_transformers():
    assert {name.replace("-", "_") for name in FAMILIES} == set(NAMES)
    assert all(name in transformers.CONFIG_MAPPING for name in FAMILIES)


def test_families_built_like_bert_share_its_description():
    for name in ("roberta", "xlm-roberta", "ernie", "electra", "camembert"):
        assert replace(FAMILIES[name], model_type="bert") == FAMILIES["bert"]


@pytest.mark.parametrize("kind", ["model", "config", "dictionary", "name", "inside"])
def test_find_takes_whatever_says_its_model_type(kind):
    config = transformers.BertConfig(
        hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1, vocab_size=9
    )
    model = transformers.BertModel(config)
    things = {
        "model": model,
        "config": config,
        "dictionary": config.to_dict(),
        "name": "bert",
        "inside": nn.Sequential(model),
    }
    assert find(things[kind]) is FAMILIES["bert"]


def test_unknown_family_is_refused_with_what_to_write():
    with pytest.raises(
        UserError, match=r"The family 'gpt2' has no description.*tersely\.models\.families\.Family.*describe_a_family"
    ):
        find(transformers.GPT2Config())
    with pytest.raises(UserError, match="no config with a 'model_type'"):
        find(nn.Linear(2, 2))


def test_albert_of_several_groups_is_refused_by_name(prunable):
    model = load_module(prunable("albert", num_hidden_groups=3))
    with pytest.raises(UserError, match="This albert model cannot be pruned: 3 groups of 1 layers"):
        locate(model, find(model))


def test_registered_family_is_found():
    mine = replace(FAMILIES["bert"], model_type="mine")
    try:
        register(mine)
        assert find("mine") is mine
    finally:
        FAMILIES.pop("mine", None)


WRONG = {
    "layers": ("encoder.layers", "has no modules with a list 'encoder.layers'"),
    "attention_out": ("attention.dense", r"there is nothing at '.*layer\.0\.attention\.dense'; a Linear is expected"),
    "ffn_out": ("output.LayerNorm", "there is a LayerNorm at .*; a Linear is expected"),
    "head_size": ("attention.self.size", r"there is no attribute '.*layer\.0\.attention\.self\.size'"),
    "ffn_in": ((Stacked("intermediate.dense", 2),), r"gives 96 outputs; 192 \(2 times 96 neurons of 1\) are expected"),
    "attention_in": (("intermediate.dense",), r"gives 96 outputs; 48 \(6 heads of 8\) are expected"),
}


@pytest.mark.parametrize("field", WRONG)
def test_description_that_does_not_fit_is_named_by_place(prunable, field):
    value, message = WRONG[field]
    model = load_module(prunable())
    with pytest.raises(UserError, match=f"The description of 'bert' does not fit the model: .*{message}"):
        shape_of(model, replace(FAMILIES["bert"], **{field: value}))


def test_two_encoders_in_one_model_are_refused():
    config = transformers.BertConfig(
        hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1, vocab_size=9
    )
    towers = nn.ModuleList([transformers.BertModel(config), transformers.BertModel(config)])
    with pytest.raises(UserError, match=r"has 2 modules with a list 'encoder\.layer' \('0', '1'\)"):
        locate(towers, FAMILIES["bert"])


BROKEN = {
    "head_count": ("deberta_v2", {"head_count": ()}, "is a layer or an attribute left out"),
    "head_tables": ("mpnet", {"head_tables": ()}, "another order of heads must not change"),
    "attention_in": (
        "bert",
        {"attention_in": FAMILIES["bert"].attention_in[:2]},
        "another order of heads must not change",
    ),
    "own layers": ("deberta_v2", {"attention_in_if_there": ()}, "another order of heads must not change"),
    "head_width": ("bert", {"head_width": ("attention.self.num_attention_heads",)}, "holds 6; 48 is expected"),
    "ffn": ("modernbert", {"ffn_in": ("mlp.Wo",)}, "gives 48 outputs; 96"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_wrong_description_is_found_out(prunable, name):
    family, changes, message = BROKEN[name]
    model = load_module(prunable(family, **({"share_att_key": False} if family == "deberta_v2" else {})))
    with pytest.raises((AssertionError, UserError), match=message):
        check_family(replace(find(model), **changes), model)


class Mixed(nn.Module):
    """Query, key and value interleaved by head, which `Stacked` does not describe."""

    def __init__(self, interleaved: bool) -> None:
        super().__init__()
        self.interleaved, self.head_size = interleaved, 4
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(x).unflatten(-1, (-1, 3, 4) if self.interleaved else (3, -1, 4))
        q, k, v = (part.transpose(-2, -3) for part in parts.unbind(-2 if self.interleaved else -3))
        return self.out((torch.softmax(q @ k.mT, -1) @ v).transpose(-2, -3).flatten(-2))


class Block(nn.Module):
    def __init__(self, interleaved: bool) -> None:
        super().__init__()
        self.attention = Mixed(interleaved)
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.down(torch.sigmoid(self.gate(x)) * self.up(x))


class Own(nn.Module):
    def __init__(self, interleaved: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.blocks = nn.ModuleList(Block(interleaved) for _ in range(2))
        self.head = nn.Linear(16, 2)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


OWN = Family(
    model_type="own",
    layers="blocks",
    attention_in=(Stacked("attention.qkv", 3),),
    attention_out="attention.out",
    ffn_in=("gate", "up"),
    ffn_out="down",
    head_size="attention.head_size",
)


def test_plain_module_with_a_description_of_its_own_proves_itself():
    check_family(OWN, Own(), {"input_ids": torch.arange(12).view(2, 6)})


def test_interleaved_heads_are_found_out():
    with pytest.raises(AssertionError, match="another order of heads must not change what the model gives"):
        check_family(OWN, Own(interleaved=True), {"input_ids": torch.arange(12).view(2, 6)})


def test_neurons_without_effect_are_found_out():
    class Deaf(Own):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.words(input_ids).mean(1))

    with pytest.raises(AssertionError, match=r"logits do not depend on the input of 'blocks\.0\.attention\.out'"):
        check_family(OWN, Deaf(), {"input_ids": torch.arange(12).view(2, 6)})


def test_check_leaves_the_model_alone(prunable):
    model = load_module(prunable()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check_family(find(model), model)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not hasattr(model.config, "tersely_shape")
