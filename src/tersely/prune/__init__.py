"""Models made smaller before anything is quantized: width that no score needs, words that no row uses."""

from ..training.distillation import TrainingRun
from ..training.model_folder import save_carved
from ..training.teacher import record_states
from .dynabert import Pruned, train_widths
from .elastic import Elastic
from .importance import Importance, importance, own_predictions, prune_only, reorder
from .widths import PruneSettings

__all__ = [
    "Elastic", "Importance", "PruneSettings", "Pruned", "TrainingRun", "importance", "own_predictions", "prune_only",
    "record_states", "reorder", "save_carved", "train_widths",
]  # fmt: skip
