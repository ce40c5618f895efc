"""The `tersely` command: one file per subcommand, thin: parse, call, print."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from .. import __version__
from ..errors import Failure, UserError, missing_package, nearest
from ..options.option import underscored
from ..processes import together

if TYPE_CHECKING:
    from .arguments import Parser

COMMANDS: Mapping[str, str] = {
    "compress": "make a fine-tuned model small and fast, keep the best of what your rows say",
    "finetune": "train an encoder on your own rows",
    "convert": "turn a checkpoint of PaddleNLP into a transformers folder",
    "export": "turn a model folder into an artifact that runs without torch, or into a form for other programs",
    "evaluate": "score a model folder or an artifact on labelled rows",
    "report": "draw what a compress run found as one page: report.html and report.md",
    "benchmark": "time models and engines against each other in one alternating run",
    "predict": "answer texts from a file or standard input",
    "serve": "answer requests over HTTP, with a page to type into",
    "tune": "time an artifact's graphs and engines here, so that 'auto' takes the fastest",
    "check": "replay an artifact's probe here, and fail if its predictions moved",
    "info": "show versions, this machine's CPU class, and the engines that are installed",
    "demo": "see all of it on a small real model, offline",
}
"""What each subcommand does. Its module is imported only when it is called, so that help is instant."""

COMPRESS = {"torch", "transformers", "accelerate", "onnx", "onnxscript", "safetensors", "datasets"}
"""Packages of the extra `[compress]`, which the base install does without."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; give its exit code: 0 done, 1 failed, 2 bad input. Of several processes one speaks."""
    words = list(sys.argv[1:] if argv is None else argv)
    return together(lambda: _main(words))


def _main(argv: list[str]) -> int:
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return _run(argv)
        except ModuleNotFoundError as error:
            if error.name not in COMPRESS:
                raise
            raise missing_package(error.name, f"tersely {argv[0]}", "compress") from error
    except UserError as error:
        error.on_command_line = True
        if "--debug" in argv:
            raise
        sys.stderr.write(f"tersely: {_one_line(error)}\n")
        return 1 if isinstance(error, Failure) else 2
    except KeyboardInterrupt:
        sys.stderr.write("tersely: interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone. Python flushes once more at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # the user gets a line, a developer the traceback
        if "--debug" in argv:
            raise
        sys.stderr.write(f"tersely: {type(error).__name__}: {_one_line(error)} (a bug: --debug shows where)\n")
        return 1


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print ours in one plain line; those of other libraries as Python does, with their place in the code."""
    if category.__module__.startswith("tersely."):
        text = f"tersely: warning: {_one_line(message)}\n"
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0
    if argv[0] in ("-V", "--version"):
        sys.stdout.write(f"tersely {__version__}\n")
        return 0
    name = argv[0]
    if name not in COMMANDS:
        raise UserError(f"There is no command '{name}'.", hint=nearest(name, COMMANDS))
    parser, module = parser_of(name)
    words = [underscored(word) for word in argv[1:]]
    if hasattr(module, "prepare"):
        words = module.prepare(parser, words)
    arguments, rest = parser.parse_known_args(words)
    parser.refuse(rest, but_options=getattr(module, "TAKES_MORE", False))
    arguments.rest, arguments.command_line = rest, argv
    return int(module.run(arguments))


def parser_of(name: str) -> tuple[Parser, Any]:
    """Make the parser of a subcommand; its module comes with it."""
    from .arguments import Parser

    module = importlib.import_module(f".{name}", __name__)
    parser = Parser(prog=f"tersely {name}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.usage = parser.usage_line()
    return parser, module


def _one_line(error: Exception | str) -> str:
    """What other libraries say may run over many lines."""
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _help() -> str:
    lines = ["usage: tersely COMMAND [options]", "", "Makes fine-tuned text encoders small and fast.", ""]
    width = max(map(len, COMMANDS))
    lines += [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join([*lines, "", "tersely COMMAND --help shows a command's options.", ""])
