"""Options of quantization-aware training, checked: the start, the ranges, the losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..quantize.weights import CPU_CLASSES, KINDS, check_word
from ..training.losses import LossSettings, check_number

MOVING, WINDOW, AT_RUN_TIME = "moving_average_abs_max", "range_abs_max", "abs_max"
RANGES = (MOVING, WINDOW, AT_RUN_TIME)


@dataclass(frozen=True)
class QatSettings(LossSettings):
    """The options of `qat`, each by its name.

    >>> QatSettings(activation_quantize_type="absmax")
    Traceback (most recent call last):
    tersely.errors.UserError: There is no 'activation_quantize_type' called 'absmax'. Did you mean 'abs_max'?
    """

    weight_quantize_type: str = "channel_wise_abs_max"
    activation_quantize_type: str = MOVING
    moving_rate: float = 0.9
    use_pact: bool = True
    """Of no effect with ranges taken at run time: an engine has nothing to clip by."""
    pact_rate: float = 20.0
    """Times the learning rate. A clip is learnt as a share of where it began, so that this is a relative speed."""
    pact_decay: float = 0.0
    """Weight decay of that share: draws clips towards 0."""
    cpu_classes: str = "all"
    algo_list: tuple[str, ...] = ("mse", "KL", "min_max")
    """Calibrators to start from: the one whose logits move least."""
    smooth: str | float = "auto"
    label_loss: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_word("weight_quantize_type", self.weight_quantize_type, KINDS)
        check_word("activation_quantize_type", self.activation_quantize_type, RANGES)
        check_word("cpu_classes", self.cpu_classes, CPU_CLASSES)
        check_number("moving_rate", self.moving_rate, lambda value: 0 <= value < 1, "from 0 to below 1")
        check_number("pact_rate", self.pact_rate, lambda value: value > 0, "a number above 0")
        check_number("pact_decay", self.pact_decay, lambda value: value >= 0, "a number, 0 or more")
        super().__post_init__()
        if self.criterion is not None and not self.label_loss:
            raise UserError("The 'criterion' option has no effect with 'label_loss' 0.", hint="Leave it out.")

    @property
    def clips(self) -> bool:
        """Whether clips are learnt."""
        return self.use_pact and self.activation_quantize_type != AT_RUN_TIME

    def as_json(self) -> dict[str, Any]:
        """Plain types; a function by its name."""
        return {**super().as_json(), "algo_list": list(self.algo_list)}
