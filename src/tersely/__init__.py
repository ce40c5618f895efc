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
    from .models.load import load_model
    from .paddle_api import OFA, CompressionArguments, PdArgumentParser, Trainer

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
    "CompressionArguments": ".paddle_api.arguments",
    "OFA": ".paddle_api.user_metrics",
    "PdArgumentParser": ".paddle_api.parser",
    "Trainer": ".paddle_api.trainer",
    "UserError": ".errors",
    "compress": ".compression.call",
    "load_model": ".models.load",
    "runtime": ".runtime",
}
"""Public names and the modules that hold them, imported at first use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tersely' has no attribute '{name}'")
    module = import_module(_HOMES[name], __name__)
    return getattr(module, name, module)
