"""Engines that run a model: one file each, one entry each in the table in `facts`."""

from .cpu import CLASSES, cpu
from .engine import Batch, Engine, Outputs, installed, load, warm, with_providers
from .facts import ENGINES, GRAPH_ENGINES, REFERENCE, EngineFacts

__all__ = [
    "CLASSES",
    "ENGINES",
    "GRAPH_ENGINES",
    "REFERENCE",
    "Batch",
    "Engine",
    "EngineFacts",
    "Outputs",
    "cpu",
    "installed",
    "load",
    "warm",
    "with_providers",
]
