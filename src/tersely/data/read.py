"""One door for all formats: a file goes in, `Rows` come out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, existing, nearest
from . import clue, conll, csv, glue, json, parquet, squad, text, tsv
from .dataset import from_dataset
from .header import is_header
from .lines import beginning
from .locate import known_names, known_task, locate, plain, split_file, task_of
from .rows import Rows

Record = Mapping[str, Any]
Placed = Iterator[tuple[int, Record]]


@dataclass(frozen=True)
class Format:
    """How a kind of file is read: its reader, its suffixes, the options that mean something to it."""

    records: Callable[..., Placed]
    suffixes: tuple[str, ...]
    options: tuple[str, ...] = ()


FORMATS: Mapping[str, Format] = {
    "csv": Format(csv.records, (".csv",), ("header", "delimiter")),
    "tsv": Format(tsv.records, (".tsv", ".tab"), ("header",)),
    "json": Format(json.records, (".json",)),
    "jsonl": Format(json.line_records, (".jsonl", ".ndjson")),
    "parquet": Format(parquet.records, (".parquet",)),
    "conll": Format(conll.records, (".conll", ".bio", ".iob", ".bmes", ".bioes"), ("word_column", "tag_column")),
    "text": Format(text.records, ()),
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
    file = file_of(path, split)
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
        return read(existing(source, "file"), header=header)
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
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - set(FORMATS[kind].options):
        raise UserError(f"The '{name}' option means nothing to {kind} files.", where=str(path), hint="Leave it out.")
    records = FORMATS[kind].records(path, **given)
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


def read_glue(folder: str | Path, task: str | None, split: str) -> Rows:
    """Read a split of a folder in GLUE's layout; None: the task is recognised from the files."""
    rows = read(folder, split=split, dataset=task, format="tsv")
    if "text" not in rows.columns:
        raise glue.unlike("tasks", rows.columns, rows.source)
    columns = [name for name in ("text", "text_pair", "label") if name in rows.columns]
    return rows.map(lambda record: {name: record[name] for name in columns}, columns)


def file_of(path: str | Path, split: str | None) -> Path:
    """Take the file itself, or the split's file in a folder."""
    path = existing(path, "file")
    if split is not None and not path.is_dir():
        raise UserError("The 'split' option needs a folder; this is a file.", where=str(path), hint="Leave it out.")
    return path if split is None else split_file(path, split)


def format_of(path: Path) -> str:
    """Tell the format from the suffix; .tsv may be CoNLL columns, .txt (or no suffix) is looked into."""
    suffix = path.suffix.lower()
    if suffix in ("", ".txt", ".tsv"):
        return guessed(beginning(path), tsv=suffix == ".tsv")
    for name, one in FORMATS.items():
        if suffix in one.suffixes:
            return name
    existing(path, "file")
    suffixes = ", ".join(suffix for one in FORMATS.values() for suffix in one.suffixes)
    raise UserError(f"The suffix '{suffix}' is not known.", where=str(path), hint=f"Known: {suffixes}, .txt.")


def guessed(start: str, tsv: bool) -> str:
    """Guess the format from the first lines: json, CoNLL columns, tsv, csv with a header, else a text per line."""
    if start.lstrip()[:1] in ("{", "[") and not tsv:
        return "json"
    rows = start.rstrip().replace("\r\n", "\n").split("\n")
    full = [row for row in rows if row.strip() and not row.startswith(("# ", conll.DOCUMENT))]
    fields = [conll.fields_of(row, "\t" in row) for row in full]
    tagged = bool(full) and all(len(one) > 1 and TAG.fullmatch(one[-1].strip()) for one in fields)
    if tagged and (not tsv or len(full) < len(rows)):
        return "conll"
    if tsv or (full and "\t" in full[0]):
        return "tsv"
    return "csv" if full and "," in full[0] and is_header(full[0].split(",")) else "text"


def named(records: Placed, first: Record, dataset: str, source: str) -> Placed:
    """Apply the rule of the data set that the user names: text, text_pair, label come out."""
    task = known_task(dataset)
    if task is not None and task in clue.RULES:
        rule = clue.rule_of(task)
        return clue.agreed(((line, rule(record, f"{source}:{line}")) for line, record in records), source)
    if task is not None:
        layout = glue.recognise(first, task)
        if layout is None:
            raise glue.unlike(task, first, source)
        return ((line, layout.canonical(record)) for line, record in records)
    if plain(task_of(dataset)) not in map(plain, known_names()):
        raise UserError(f"There is no data set '{dataset}'.", where="dataset", hint=nearest(dataset, known_names()))
    return squad.located(records, source) if squad.is_squad(first) else records


def recognised(records: Placed, first: Record, kind: str, source: str) -> Placed:
    """Add text, text_pair, label to files that are plainly GLUE's or CLUE's; check answers against offsets."""
    if squad.is_squad(first):
        return squad.located(records, source)
    layout = glue.recognise(first) if kind == "tsv" else None
    if layout is not None:
        return ((line, beside(layout.canonical(record), record)) for line, record in records)
    task = clue.recognise(first) if kind in ("json", "jsonl") else None
    if task is None:
        return records
    rule = clue.rule_of(task)
    both = ((line, beside(rule(record, f"{source}:{line}"), record)) for line, record in records)
    return clue.agreed(both, source)


def beside(canonical: Record, record: Record) -> Record:
    """Put the canonical columns first, then the file's own as far as their names are free."""
    return {**canonical, **{name: value for name, value in record.items() if name not in canonical}}
