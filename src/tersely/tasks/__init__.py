"""Tasks: one file each; features, decode, score. No torch."""

from .encoder import Encoder, Feature
from .options import TASKS, facts_of, from_json, heads, kinds, settings_of, task_of_class, to_json
from .own import Own
from .question_answering import QuestionAnswering
from .sequence_classification import SequenceClassification
from .task import Columns, Facts, Input, InputError, Task
from .token_classification import TokenClassification

__all__ = [
    "TASKS",
    "Columns",
    "Encoder",
    "Facts",
    "Feature",
    "Input",
    "InputError",
    "Own",
    "QuestionAnswering",
    "SequenceClassification",
    "Task",
    "TokenClassification",
    "facts_of",
    "from_json",
    "heads",
    "kinds",
    "settings_of",
    "task_of_class",
    "to_json",
]
