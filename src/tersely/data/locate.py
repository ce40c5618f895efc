"""Names of data sets to folders on this machine, and splits to files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError, nearest
from .clue import RULES as CLUE
from .glue import TASKS as GLUE

FAMILIES = ("clue", "glue")
OTHERS = ("msra_ner", "cmrc2018")
VARIABLE = "TERSELY_DATA"
SPLITS = {"train": ("train", "training"), "dev": ("dev", "valid", "validation", "eval"), "test": ("test",)}
SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".txt", ".parquet", ".conll", ".bio", ".iob")
# Where a corpus has several files of one split, the one that its leaderboard scores or trains on.
PREFERRED = ("dev_matched", "test_matched", "train.50k")


def locate(name: str, data_dir: str | Path | None = None) -> Path:
    """Find the folder of a data set: a path, or a name ("clue tnews", "tnews", "glue MRPC") under `data_dir`.

    `data_dir` defaults to the environment variable TERSELY_DATA. Nothing is downloaded.

    >>> import tempfile; there = Path(tempfile.mkdtemp()); (there / "clue" / "tnews").mkdir(parents=True)
    >>> locate("tnews", there).relative_to(there).as_posix()
    'clue/tnews'
    """
    if Path(name).is_dir():
        return Path(name)
    root = Path(data_dir or os.environ.get(VARIABLE) or ".")
    wanted = plain(task_of(name))
    places = [root, *(root / family for family in FAMILIES)]
    for place in places:
        for folder in sorted(place.iterdir()) if place.is_dir() else ():
            if folder.is_dir() and wanted in (plain(folder.name), plain(folder.name).removesuffix("public")):
                return folder
    known = () if plain(wanted) in map(plain, known_names()) else (nearest(name, known_names()),)
    what = f"There is no data set '{name}' in {', '.join(map(str, places))}. Nothing is downloaded here."
    put = f"Put its files (train.*, dev.*, test.*) in {root / task_of(name)}, or set data_dir or {VARIABLE}."
    raise UserError(what, where="dataset", hint=" ".join((*known, put)))


def split_file(folder: str | Path, split: str) -> Path:
    """Find the file of a split ("train", "dev" or "test") by its usual names, such as valid.csv or dev-v1.1.json."""
    found = find_split(folder, split)
    if found is None:
        meant, files = _meant(Path(folder), split), _data_files(Path(folder))
        looked = ", ".join(f"{name}.*" for name in SPLITS[meant])
        there = ", ".join(file.name for file in files) or "no data files"
        raise UserError(f"There is no {meant} file ({looked}). Here: {there}.", where=str(folder))
    return found


def find_split(folder: str | Path, split: str) -> Path | None:
    """The same, None where the folder has no file of the split; several that could be it are refused."""
    folder = Path(folder)
    meant, files = _meant(folder, split), _data_files(folder)
    for name in SPLITS[meant]:
        exact = [file for file in files if file.stem.lower() == name]
        loose = [file for file in files if name in re.split(r"[-_.]", file.stem.lower())]
        preferred = [file for file in loose if file.stem.lower() in PREFERRED]
        for found in (exact, preferred, loose):
            if len(found) > 1:
                raise several(found, meant, folder)
            if found:
                return found[0]
    return None


def _meant(folder: Path, split: str) -> str:
    """The usual name of a split: valid is dev."""
    meant = next((usual for usual, names in SPLITS.items() if split in (usual, *names)), None)
    if meant is None:
        raise UserError(f"There is no split '{split}'.", where=str(folder), hint=nearest(split, SPLITS))
    return meant


def _data_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError("There is no such folder.", where=str(folder), hint="Check the path.")
    return [file for file in sorted(folder.iterdir()) if file.is_file() and file.suffix.lower() in SUFFIXES]


def several(found: Iterable[Path], split: str, folder: Path) -> UserError:
    """Refuse to guess among files."""
    names = ", ".join(file.name for file in found)
    return UserError(f"Several files could be the {split} split: {names}.", where=str(folder), hint="Name the file.")


def task_of(name: str) -> str:
    """Take the family off a name: "clue tnews" and "clue/tnews" are tnews.

    >>> task_of("clue tnews"), task_of("msra_ner")
    ('tnews', 'msra_ner')
    """
    family, *rest = re.split(r"[ /]+", name.strip(), maxsplit=1)
    return rest[0] if rest and family.lower() in FAMILIES else name.strip()


def known_task(name: str) -> str | None:
    """Give the usual spelling of a CLUE or GLUE task's name, if it is one.

    >>> known_task("glue SST-2"), known_task("reviews")
    ('sst2', None)
    """
    wanted = plain(task_of(name))
    return next((task for task in (*CLUE, *GLUE) if plain(task) == wanted), None)


def known_names() -> tuple[str, ...]:
    """List the names that have a meaning of their own."""
    return (*CLUE, *GLUE, *OTHERS)


def plain(name: str) -> str:
    """Forget case, hyphens and underscores: SST-2 is sst2."""
    return re.sub(r"[-_]", "", name.lower())
