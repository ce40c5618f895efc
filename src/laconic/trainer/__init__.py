"""What scripts that were written for the reference's trainer import."""

from .arguments import CompressionArguments
from .parser import PdArgumentParser

__all__ = ["CompressionArguments", "PdArgumentParser"]
