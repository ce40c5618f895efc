"""Training that feels INT8: fake quantization in torch, and what it learnt as a `QuantMap`."""

from ..training.distillation import TrainingRun
from .model import FakeQuantized
from .options import QatSettings
from .start import Calibrated
from .training import Trained, train_int8

__all__ = ["Calibrated", "FakeQuantized", "QatSettings", "Trained", "TrainingRun", "train_int8"]
