"""Models made smaller before anything is quantized: width that no score needs, words that no row uses."""

from .carved_folder import save_carved
from .elastic import Elastic
from .importance import Importance, importance, own_predictions
from .reorder import reorder
from .states import record_states

__all__ = ["Elastic", "Importance", "importance", "own_predictions", "record_states", "reorder", "save_carved"]
