"""Run an artifact: load, predict. No torch, no transformers, ever."""

from .choose import ClassWarning, choose
from .predictor import Predictor, load, open_encoder

__all__ = ["ClassWarning", "Predictor", "choose", "load", "open_encoder"]
