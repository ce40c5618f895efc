"""Tersely makes fine-tuned text encoders small and fast, and runs them on CPUs without torch.

>>> import tersely
>>> sorted(tersely.__all__)[:4]
['CompressionArguments', 'OFA', 'PdArgumentParser', 'Trainer']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import runtime
    from .compression.call import compress
    from .errors import UserError
    from .reload import load_model
    from .trainer import OFA, CompressionArguments, PdArgumentParser, Trainer

__version__ = "0.2.0"
__all__ = [
    "OFA",
    "CompressionArguments",
    "PdArgumentParser",
    "Trainer",
    "UserError",
    "__version__",
    "compress",
    "load_model",
    "runtime",
]

_HOMES = {
    "CompressionArguments": ".trainer.arguments",
    "OFA": ".trainer.handed",
    "PdArgumentParser": ".trainer.parser",
    "Trainer": ".trainer.trainer",
    "UserError": ".errors",
    "compress": ".compression.call",
    "load_model": ".reload",
    "runtime": ".runtime",
}
"""Public names and the modules that hold them, imported at first use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tersely' has no attribute '{name}'")
    module = import_module(_HOMES[name], __name__)
    return getattr(module, name, module)
