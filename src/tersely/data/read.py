"""One door for all formats: a file goes in, `Rows` come out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, existing, nearest
from . import clue, conll, glue, json, parquet, squad
from .dataset import from_dataset
from .lines import beginning, text_records
from .locate import known_names, known_task, locate, plain, split_file, task_of
from .rows import Rows
from .table import csv_records, is_header, tsv_records

Record = Mapping[str, Any]
Placed = Iterator[tuple[int, Record]]


@dataclass(frozen=True)
class Format:
    """How a kind of file is read: its reader, its suffixes, the options that mean something to it."""

    records: Callable[..., Placed]
    suffixes: tuple[str, ...]
    options: tuple[str, ...] = ()


FORMATS: Mapping[str, Format] = {
    "csv": Format(csv_records, (".csv",), ("header", "delimiter")),
    "tsv": Format(tsv_records, (".tsv", ".tab"), ("header",)),
    "json": Format(json.records, (".json",)),
    "jsonl": Format(json.line_records, (".jsonl", ".ndjson")),
    "parquet": Format(parquet.records, (".parquet",)),
    "conll": Format(conll.records, (".conll", ".bio", ".iob", ".bmes", ".bioes"), ("word_column", "tag_column")),
    "text": Format(text_records, ()),
}
TAG = re.compile(r"O|[BIESMLU]([-_].+)?")


def read(
    path: str | Path,
    *,
    format: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    dataset: str | None = None,
    split: str | None = None,
) -> Rows:
    r"""Read a data file, or the split of a folder, whatever its format.

    None: found out from suffix and content. `header`: whether a table's first row names its columns. `dataset`: a CLUE
    or GLUE task, whose fields become text, text_pair, label and nothing else; files that are plainly a GLUE or CLUE
    task's get these columns besides their own without being asked.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("text,label\ngood,1\n")
    >>> read(file).records
    ({'text': 'good', 'label': '1'},)
    """
    file = existing(path, "file")
    if split is not None and not file.is_dir():
        raise UserError("The 'split' option needs a folder; this is a file.", where=str(file), hint="Leave it out.")
    file = file if split is None else split_file(file, split)
    options = {"header": header, "delimiter": delimiter, "word_column": word_column, "tag_column": tag_column}
    rows = Rows.collect(str(file), iter_records(file, format=format, dataset=dataset, **options))
    if not rows:
        raise UserError("The file holds no rows.", where=str(file))
    return rows


RowSource = str | Path | Rows | Iterable[Mapping[str, Any]] | Callable[[], Rows]
"""What public functions take for rows: a file, a `datasets.Dataset`, a list of mappings, or what reads rows."""


def rows_of(source: RowSource, header: bool | None = None) -> Rows:
    """Read the rows of a source; `header` is for csv and tsv files.

    >>> rows_of([{"text": "good", "label": "yes"}]).records
    ({'text': 'good', 'label': 'yes'},)
    """
    if isinstance(source, (str, Path)):
        return read(source, header=header)
    if isinstance(source, Rows):
        return source
    return source() if callable(source) else from_dataset(source)


def iter_records(
    path: str | Path, *, format: str | None = None, dataset: str | None = None, **options: bool | str | int | None
) -> Placed:
    """Give (line, record) one by one, as `read` would; files that can be streamed are."""
    path = Path(path)
    kind = format or format_of(path)
    if kind not in FORMATS:
        raise UserError(f"There is no format '{kind}'.", where=str(path), hint=nearest(kind, FORMATS))
    are_set = {name: value for name, value in options.items() if value is not None}
    for name in are_set.keys() - set(FORMATS[kind].options):
        raise UserError(f"The '{name}' option means nothing to {kind} files.", where=str(path), hint="Leave it out.")
    records = FORMATS[kind].records(path, **are_set)
    first = next(records, None)
    if first is None:
        return iter(())
    records = itertools.chain([first], records)
    if dataset is not None:
        return named(records, first[1], dataset, str(path))
    return recognised(records, first[1], kind, str(path))


def read_dataset(name: str, split: str, data_dir: str | Path | None = None) -> Rows:
    """Read a split of a data set by its name ("clue tnews", "glue mrpc", "msra_ner") or folder."""
    folder = locate(name, data_dir)
    task = known_task(name) or known_task(folder.name)
    return read(folder, split=split, dataset=task)


def format_of(path: Path) -> str:
    """Tell the format from the suffix; .tsv may be CoNLL columns, .txt (or no suffix) is looked into."""
    suffix = path.suffix.lower()
    if suffix in ("", ".txt", ".tsv"):
        return guessed(beginning(path), tsv=suffix == ".tsv")
    for name, known in FORMATS.items():
        if suffix in known.suffixes:
            return name
    existing(path, "file")
    suffixes = ", ".join(suffix for known in FORMATS.values() for suffix in known.suffixes)
    raise UserError(f"The suffix '{suffix}' is not known.", where=str(path), hint=f"Known: {suffixes}, .txt.")


def guessed(start: str, tsv: bool) -> str:
    """Guess the format from the first lines: json, CoNLL columns, tsv, csv with a header, else a text per line."""
    if start.lstrip()[:1] in ("{", "[") and not tsv:
        return "json"
    rows = start.rstrip().replace("\r\n", "\n").split("\n")
    full = [row for row in rows if row.strip() and not row.startswith(("# ", conll.DOCUMENT))]
    fields = [conll.fields_of(row, "\t" in row) for row in full]
    tagged = bool(full) and all(len(row) > 1 and TAG.fullmatch(row[-1].strip()) for row in fields)
    if tagged and (not tsv or len(full) < len(rows)):
        return "conll"
    if tsv or (full and "\t" in full[0]):
        return "tsv"
    return "csv" if full and "," in full[0] and is_header(full[0].split(",")) else "text"


def named(records: Placed, first: Record, dataset: str, source: str) -> Placed:
    """Apply the rule of the data set that the user names: text, text_pair, label come out."""
    task = known_task(dataset)
    if task is not None and task in clue.RULES:
        rule = clue.RULES[task]
        return clue.agreed(((line, rule(record, f"{source}:{line}")) for line, record in records), source)
    if task is not None:
        columns = glue.recognise(first, task)
        if columns is None:
            what = f"The columns are not those of GLUE's {task}. Columns here: {', '.join(first)}."
            raise UserError(what, where=source, hint="Check the folder, or name the columns yourself.")
        return ((line, columns.canonical(record)) for line, record in records)
    if plain(task_of(dataset)) not in map(plain, known_names()):
        raise UserError(f"There is no data set '{dataset}'.", where="dataset", hint=nearest(dataset, known_names()))
    return squad.located(records, source) if squad.is_squad(first) else records


def recognised(records: Placed, first: Record, kind: str, source: str) -> Placed:
    """Add text, text_pair, label to files that are plainly GLUE's or CLUE's; check answers against offsets."""
    if squad.is_squad(first):
        return squad.located(records, source)
    columns = glue.recognise(first) if kind == "tsv" else None
    if columns is not None:
        return ((line, beside(columns.canonical(record), record)) for line, record in records)
    task = clue.recognise(first) if kind in ("json", "jsonl") else None
    if task is None:
        return records
    rule = clue.RULES[task]
    both = ((line, beside(rule(record, f"{source}:{line}"), record)) for line, record in records)
    return clue.agreed(both, source)


def beside(canonical: Record, record: Record) -> Record:
    """Put the canonical columns first, then the file's own as far as their names are free."""
    return {**canonical, **{name: value for name, value in record.items() if name not in canonical}}
