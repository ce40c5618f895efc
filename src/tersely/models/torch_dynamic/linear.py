"""A linear layer with INT8 weights that takes its input's range from each batch, on torch's own CPU kernels."""

from __future__ import annotations

import warnings
from typing import Any, final

import torch
from torch import nn

from ...errors import UserError


@final
class DynamicLinear(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """Inputs [..., in] times integers [out, in] and scales ([out], or [1] for all) plus a bias [out]: for inference.

    An input becomes 8-bit codes over the range of its whole batch, so that an answer depends a little on the rows that
    come with it. CPUs without VNNI sum pairs of products in 16 bits that saturate: what torch calls `reduce_range`
    avoids that with inputs of 7 bits. Here the integers do, as `quantize_weight` makes them for every CPU: half the
    change of the logits (MRPC, 0.15 instead of 0.31 on average) for the same time.

    >>> layer = DynamicLinear(torch.tensor([[100, 28]], dtype=torch.int8), torch.tensor([0.5]), torch.tensor([1.0]))
    >>> layer(torch.tensor([[255.0, 0.0], [0.0, 255.0]]))
    tensor([[12751.],
            [ 3571.]])
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        if integers.dtype != torch.int8 or integers.ndim != 2 or scales.shape not in ((1,), (len(integers),)):
            what = f"Expected int8 integers [out, in] and scales [out] or [1]. Got {integers.dtype}"
            raise ValueError(f"{what} {list(integers.shape)} and {list(scales.shape)}.")
        self.out_features, self.in_features = integers.shape
        self._has_bias = bias is not None
        self._packed = _pack(integers, scales, bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]; other float types are computed in FP32 and given back as they came."""
        output: torch.Tensor = torch.ops.quantized.linear_dynamic(input.float(), self._packed)
        return output.to(input.dtype)

    def extra_repr(self) -> str:
        """What `print` shows of it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype=int8"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Give out what the kernels packed: kept once, not twice."""
        weight, bias = torch.ops.quantized.linear_unpack(self._packed)
        per_tensor = weight.qscheme() == torch.per_tensor_affine
        scales = torch.tensor([weight.q_scale()]) if per_tensor else weight.q_per_channel_scales()
        destination[f"{prefix}integers"], destination[f"{prefix}scales"] = weight.int_repr(), scales.float()
        if self._has_bias:  # some kernels give back zeros where there was none
            destination[f"{prefix}bias"] = bias.detach()


def _pack(integers: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Any:
    """Hand a weight to the kernels that `torch.backends.quantized.engine` names; only packing looks at that."""
    with warnings.catch_warnings():
        # torch 2.13 announces the end of the tensors that packing takes (pytorch issue 184982). No other integer
        # kernel is faster than FP32 on every CPU yet; what is saved is plain int8, so another can take its place.
        warnings.simplefilter("ignore")
        try:
            if scales.shape == (1,):
                weight = torch._make_per_tensor_quantized_tensor(integers, float(scales), 0)
            else:
                zeros = torch.zeros(len(integers), dtype=torch.int64)
                weight = torch._make_per_channel_quantized_tensor(integers, scales.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(weight, bias)
        except (AttributeError, NotImplementedError, RuntimeError) as error:
            engine = torch.backends.quantized
            raise UserError(
                f"torch {torch.__version__} cannot run INT8 layers here: {str(error).splitlines()[0]}",
                hint=f"torch.backends.quantized.engine is '{engine.engine}'; it can be one of: "
                f"{', '.join(engine.supported_engines)}.",
            ) from error
