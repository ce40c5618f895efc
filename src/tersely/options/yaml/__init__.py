"""Configuration files: YAML in PaddleNLP's two shapes, or options by their names, as settings of options.

`read_config` gives settings in the words that a command line would have, so that one parser reads both: `beside` drops
what the command line sets, `without_idle` what has no effect on the run, `as_words` gives the rest for the parser.
"""

from .document import Config, FileOption
from .merge import Flags, as_words, beside, which_config, without_idle
from .read import Asker, read_config

__all__ = [
    "Asker",
    "Config",
    "FileOption",
    "Flags",
    "as_words",
    "beside",
    "read_config",
    "which_config",
    "without_idle"
]  # fmt: skip
