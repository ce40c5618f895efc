"""Training that feels INT8: fake quantization in torch, and what it learnt as a `QuantMap`."""

from .model import FakeQuantized
from .settings import QatSettings
from .training import Trained, train_int8

__all__ = ["FakeQuantized", "QatSettings", "Trained", "train_int8"]
