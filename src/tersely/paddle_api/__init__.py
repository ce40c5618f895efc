"""What scripts that were written for PaddleNLP's trainer import."""

from .arguments import CompressionArguments
from .handed import OFA
from .parser import PdArgumentParser
from .trainer import Trainer

__all__ = ["OFA", "CompressionArguments", "PdArgumentParser", "Trainer"]
