"""docs/reference/commands.md from the commands' own parsers."""

from __future__ import annotations

import argparse

from tersely.cli import COMMANDS, parser_of


def page() -> str:
    """One table of options for each command."""
    lines = ["# Commands", "", "Made from the code by `make docs`. Options may be written with hyphens too.", ""]
    lines += ["Exit codes: 0 done, 1 failed, 2 bad input. Results go to standard output, progress to standard error."]
    for name, what in COMMANDS.items():
        parser, _ = parser_of(name)
        lines += ["", f"## tersely {name}", "", f"{what[0].upper()}{what[1:]}.", "", f"`{parser.usage}`", ""]
        lines += ["| option | what |", "|---|---|"]
        lines += [_line(action) for action in parser._actions if "-h" not in action.option_strings]
    return "\n".join(lines) + "\n"


def _line(action: argparse.Action) -> str:
    names = ", ".join(f"`{option}`" for option in action.option_strings) or f"`{action.metavar}`"
    needed = " (needed)" if action.required and action.option_strings else ""
    return f"| {names}{needed} | {cell(action.help or '')} |"


def cell(text: str) -> str:
    """Plain text as it can stand in a table: what Markdown would take for its own is marked.

    >>> cell("patterns (*pooler*), a|b")
    'patterns (\\\\*pooler\\\\*), a\\\\|b'
    """
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
