"""The package as its files say it: rooms, which room imports which, and class names. Nothing is imported for it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class House:
    """A package. Its rooms are the folders and single modules at its top."""

    folder: Path

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """The tree of every module by its dotted name; `__init__.py` has the name of its folder."""
        found = {}
        for path in sorted(self.folder.rglob("*.py")):
            parts = path.relative_to(self.folder.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if path.name == "__init__.py" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
        return found

    @property
    def rooms(self) -> set[str]:
        """Every room, `__main__` left out."""
        return {_room(name) for name in self.modules} - {"", "__main__"}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The rooms that each room imports, in functions too. What only type checkers read does not count."""
        found: dict[str, set[str]] = {room: set() for room in self.rooms}
        for name, tree in self.modules.items():
            if _room(name) in found:
                found[_room(name)] |= {
                    _room(target) for target in self._targets(name, tree) if target.startswith(f"{self.folder.name}.")
                }
        return {room: others & self.rooms - {room} for room, others in found.items()}

    @property
    def longest_chain(self) -> list[str]:
        """As many rooms as possible of which each imports the next."""
        return max((self._chain(room, ()) for room in self.rooms), key=len)

    @property
    def classes(self) -> dict[str, list[str]]:
        """The modules in which each public class name stands at the top level."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, tree in self.modules.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(name)
        return dict(found)

    def _chain(self, room: str, above: tuple[str, ...]) -> list[str]:
        if room in above:
            raise ValueError(f"rooms import each other in a circle: {' > '.join((*above, room))}")
        below = [self._chain(other, (*above, room)) for other in self.imports[room]]
        return [room, *max(below, key=len, default=[])]

    def _targets(self, name: str, tree: ast.Module) -> Iterator[str]:
        """The dotted names that a module imports."""
        is_folder = self.folder.parent.joinpath(*name.split(".")).is_dir()
        for node in _at_run_time(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parts = name.split(".")
                start = parts[: len(parts) + is_folder - node.level] if node.level else []
                module = ".".join([*start, *filter(None, [node.module])])
                yield from (f"{module}.{alias.name}" for alias in node.names)


def _room(name: str) -> str:
    """The room of `package.room.module`; empty for the package itself."""
    return name.split(".")[1] if "." in name else ""


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """A tree's nodes, without the blocks that are for type checkers."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from _at_run_time(child)
