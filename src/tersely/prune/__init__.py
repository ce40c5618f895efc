"""Models made smaller before anything is quantized: width that no score needs, words that no row uses."""

from ..training.states import record_states
from .carved_folder import save_carved
from .dynabert import Pruned, train_widths
from .elastic import Elastic
from .importance import Importance, importance, own_predictions
from .prune_only import prune_only
from .reorder import reorder
from .settings import PruneSettings

__all__ = [
    "Elastic", "Importance", "PruneSettings", "Pruned", "importance", "own_predictions", "prune_only", "record_states",
    "reorder", "save_carved", "train_widths",
]  # fmt: skip
