"""Every `tersely …` line in the docs, run or not, is one that the command's parser takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tersely.cli import COMMANDS, parser_of
from tersely.cli.training_arguments import training_names
from tersely.options.option import underscored

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands_of(page: Path) -> list[list[str]]:
    """The words of each command, without what the shell does with them."""
    found = []
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language not in ("", "bash", "sh"):
            continue
        block = re.sub(r"<<'YAML'\n.*?^YAML$", "", block, flags=re.DOTALL | re.MULTILINE)
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\||&&", line):
                spoken = re.match(r"\s*(?:\w+=\S+ )*tersely (.*)", part)
                if spoken:
                    words = shlex.split(spoken[1].rstrip("& "), comments=True)
                    found.append(words)
    return found


PAGES = {
    page.relative_to(ROOT).as_posix(): commands_of(page)
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
}


@pytest.mark.parametrize("page", [page for page, commands in PAGES.items() if commands])
def test_shown_commands_are_taken(page):
    for name, *words in PAGES[page]:
        if name.startswith("-"):  # tersely --help
            continue
        assert name in COMMANDS, name
        parser, module = parser_of(name)
        words = [underscored(word) for word in words]
        if hasattr(module, "prepare"):
            words = [word for word in words if not word.endswith((".yml", ".yaml"))]  # a file that is not here
            words = [word for word in words if word not in ("--config", "--config_path")]
        _, rest = parser.parse_known_args(words)
        unknown = [word[2:].split("=")[0] for word in rest if word.startswith("-")]
        assert not unknown or (getattr(module, "TAKES_MORE", False) and set(unknown) <= set(training_names())), unknown


def test_commands_are_found():
    assert ["predict", "smaller/best"] in PAGES["docs/tutorial.md"]
    assert sum(map(len, PAGES.values())) > 50
