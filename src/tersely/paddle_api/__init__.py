"""What scripts that were written for PaddleNLP's trainer import."""

from .arguments import CompressionArguments
from .parser import PdArgumentParser
from .trainer import Trainer
from .user_metrics import OFA

__all__ = ["OFA", "CompressionArguments", "PdArgumentParser", "Trainer"]
