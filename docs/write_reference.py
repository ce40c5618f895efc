"""Write docs/reference/commands.md from the commands' own parsers: `make docs`."""

from __future__ import annotations

from pathlib import Path

from laconic.cli import COMMANDS, parser_of

PAGE = Path(__file__).parent / "reference" / "commands.md"


def page() -> str:
    """One table of options for each command."""
    lines = ["# Commands", "", "Made from the code by `make docs`. Options may be written with hyphens too.", ""]
    lines += ["Exit codes: 0 done, 1 failed, 2 bad input. Results go to standard output, progress to standard error."]
    for name, what in COMMANDS.items():
        parser, _ = parser_of(name)
        lines += ["", f"## laconic {name}", "", f"{what[0].upper()}{what[1:]}.", "", "| option | what |", "|---|---|"]
        for action in parser._actions:
            if "-h" in action.option_strings:
                continue
            names = ", ".join(f"`{option}`" for option in action.option_strings) or f"`{action.metavar}`"
            needed = " (needed)" if action.required and action.option_strings else ""
            meaning = (action.help or "").replace("|", "\\|")
            lines.append(f"| {names}{needed} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
