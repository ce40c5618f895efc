"""Run an artifact: load, predict. No torch, no transformers, ever."""

from .choose import ClassWarning, choose
from .load import load, open_encoder
from .predictor import Predictor

__all__ = ["ClassWarning", "Predictor", "choose", "load", "open_encoder"]
