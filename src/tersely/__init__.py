"""Tersely makes fine-tuned text encoders small and fast, and runs them on CPUs without torch.

>>> import tersely
>>> dir(tersely)[:4]
['CompressionArguments', 'CompressionResult', 'PdArgumentParser', 'Progress']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import runtime
    from .compression.call import compress
    from .compression.result import CompressionResult
    from .deploy.benchmark import benchmark
    from .deploy.evaluate import evaluate
    from .deploy.export import export
    from .errors import UserError
    from .models.load import load_model
    from .paddle_api.arguments import CompressionArguments
    from .paddle_api.parser import PdArgumentParser
    from .paddle_api.trainer import Trainer
    from .progress import Progress
    from .training.call import finetune

__version__ = "0.2.0"
__all__ = [
    "CompressionArguments",
    "CompressionResult",
    "PdArgumentParser",
    "Progress",
    "Trainer",
    "UserError",
    "__version__",
    "benchmark",
    "compress",
    "evaluate",
    "export",
    "finetune",
    "load_model",
    "runtime",
]

_HOMES = {
    "CompressionArguments": ".paddle_api.arguments",
    "CompressionResult": ".compression.result",
    "PdArgumentParser": ".paddle_api.parser",
    "Progress": ".progress",
    "Trainer": ".paddle_api.trainer",
    "UserError": ".errors",
    "benchmark": ".deploy.benchmark",
    "compress": ".compression.call",
    "evaluate": ".deploy.evaluate",
    "export": ".deploy.export",
    "finetune": ".training.call",
    "load_model": ".models.load",
    "runtime": ".runtime",
}
"""Public names and the modules that hold them, imported at first use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tersely' has no attribute '{name}'")
    module = import_module(_HOMES[name], __name__)
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return __all__
