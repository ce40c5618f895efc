"""What a user sees when something is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """A mistake that the user can mend: what is wrong, where, and what to do.

    >>> print(UserError("The row has 3 fields, 5 expected.", where="train.tsv:12", hint="Check for a stray tab."))
    train.tsv:12: The row has 3 fields, 5 expected. Check for a stray tab.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what)

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{where}{self.what}{hint}"


class Failure(UserError):
    """The input was fine but the job could not be done (exit code 1 instead of 2)."""


def nearest(word: str, known: Iterable[str]) -> str:
    """End a message about an unknown word: the nearest known one, or all of them.

    >>> nearest("acuracy", ["accuracy", "f1"])
    "Did you mean 'accuracy'?"
    >>> nearest("zzz", ["accuracy", "f1"])
    'Known: accuracy, f1.'
    >>> nearest("pqt", ["qat", "ptq"])
    "Did you mean 'ptq'?"
    """
    known = list(known)
    close = difflib.get_close_matches(word, known)
    close.sort(key=lambda one: sorted(one) != sorted(word))  # letters that changed places come before other letters
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}."


def missing_package(package: str, needed_for: str, extra: str | None = None) -> UserError:
    """Say which pip line installs a package that is not there, with the others of the same extra."""
    packages = " ".join(_packages(extra)) if extra else ""
    return UserError(
        f"The package '{package}' is not installed; {needed_for} needs it.",
        hint=f"Install it with: pip install {packages or package}",
    )


def _packages(extra: str) -> list[str]:
    """What an extra of Tersely brings, by name: that line is right wherever Tersely itself was installed from."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires("tersely") or []
    except PackageNotFoundError:  # run from its source, not installed
        return []
    found = []
    for requirement in listed:
        package, _, condition = requirement.replace('"', "'").partition(";")
        others = [part.strip() for part in condition.split(" and ")]
        if f"extra == '{extra}'" in others:
            others.remove(f"extra == '{extra}'")
            found.append(f'"{package.strip()}{"; " + " and ".join(others) if others else ""}"')
    return found


def existing(path: str | Path, what: str) -> Path:
    """Give the path back if it is there; else say that it is not."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"There is no such {what}.", where=str(path), hint="Check the path.")
    return path
