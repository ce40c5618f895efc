"""Run an artifact: load, predict. No torch, no transformers, ever."""

from .load import choose, load, open_encoder
from .predictor import Predictor

__all__ = ["Predictor", "choose", "load", "open_encoder"]
