"""One door for all formats: a file goes in, `Rows` come out, all at once or in parts that memory holds."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ..errors import Failure, UserError, existing, nearest
from . import clue, conll, glue, json, parquet, squad
from .dataset import from_dataset
from .locate import known_names, known_task, locate, plain, split_file, task_of
from .rows import Rows, beginning, fields_of, text_records
from .table import csv_records, is_header, tsv_records

Record = Mapping[str, Any]
Placed = Iterator[tuple[int, Record]]


@dataclass(frozen=True)
class Format:
    """How a kind of file is read: its reader, its suffixes, and whether its first row may name the columns."""

    records: Callable[..., Placed]
    suffixes: tuple[str, ...]
    has_header: bool = False


FORMATS: Mapping[str, Format] = {
    "csv": Format(csv_records, (".csv",), has_header=True),
    "tsv": Format(tsv_records, (".tsv", ".tab"), has_header=True),
    "json": Format(json.records, (".json",)),
    "jsonl": Format(json.line_records, (".jsonl", ".ndjson")),
    "parquet": Format(parquet.records, (".parquet",)),
    "conll": Format(conll.records, (".conll", ".bio", ".iob", ".bmes", ".bioes")),
    "text": Format(text_records, ()),
}
TAG = re.compile(r"O|[BIESMLU]([-_].+)?")
ROWS = 1024
"""Rows a part. Batches are cut inside a part, so that answers to the last digit depend on it, but on nothing else."""


def read(
    path: str | Path,
    *,
    format: str | None = None,
    header: bool | None = None,
    dataset: str | None = None,
    split: str | None = None,
    labelled: bool = True,
) -> Rows:
    r"""Read a data file, or the split of a folder, whatever its format.

    None: found out from suffix and content. `header`: whether a table's first row names its columns. `dataset`: a CLUE
    or GLUE task, whose fields become text, text_pair, label and nothing else; files that are plainly a GLUE or CLUE
    task's get these columns besides their own without being asked. `labelled`: where labels mean nothing, no row is
    left out or refused for its label.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("text,label\ngood,1\n")
    >>> read(file).records
    ({'text': 'good', 'label': '1'},)
    """
    file = existing(path, "file")
    if split is not None and not file.is_dir():
        raise UserError("The 'split' option needs a folder; this is a file.", where=str(file), hint="Leave it out.")
    file = file if split is None else split_file(file, split)
    records = iter_records(file, format=format, header=header, dataset=dataset, labelled=labelled)
    rows = Rows.collect(str(file), records)
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


def texts_of(source: RowSource, header: bool | None = None) -> Rows:
    """Read rows whose labels mean nothing; `header` is for those that are csv or tsv.

    >>> texts_of([{"text": "good", "label": -7}]).records
    ({'text': 'good', 'label': -7},)
    """
    if isinstance(source, (str, Path)):
        has_header = FORMATS[format_of(existing(source, "file"))].has_header
        return read(source, header=header if has_header else None, labelled=False)
    if isinstance(source, Rows):
        return source
    return source() if callable(source) else from_dataset(source, labelled=False)


def iter_records(
    path: str | Path,
    *,
    format: str | None = None,
    header: bool | None = None,
    dataset: str | None = None,
    labelled: bool = True,
) -> Placed:
    """Give (line, record) one by one, as `read` would; files that can be streamed are."""
    path = Path(path)
    kind = format or format_of(path)
    if kind not in FORMATS:
        raise UserError(f"There is no format '{kind}'.", where=str(path), hint=nearest(kind, FORMATS))
    if header is not None and not FORMATS[kind].has_header:
        raise UserError(f"The 'header' option means nothing to {kind} files.", where=str(path), hint="Leave it out.")
    records = FORMATS[kind].records(path) if header is None else FORMATS[kind].records(path, header)
    first = next(records, None)
    if first is None:
        return iter(())
    records = itertools.chain([first], records)
    if dataset is not None:
        return named(records, first[1], dataset, str(path))
    return recognised(records, first[1], kind, str(path), labelled)


@dataclass(frozen=True)
class Part:
    """Some rows that follow each other, read and checked."""

    index: int
    examples: list[Any]
    where: str

    def digest(self) -> str:
        """What the rows are, whatever file they stand in."""
        return hashlib.sha256(repr(self.examples).encode()).hexdigest()


@dataclass(frozen=True)
class RowFile:
    """A file whose rows were all looked at once: `names` are its columns, `rows` how many there are."""

    path: Path
    reader: Callable[[Rows], list[Any]]
    header: bool | None = None
    names: tuple[str, ...] = ()
    rows: int = 0
    resumable: ClassVar[bool] = True

    @classmethod
    def checked(cls, path: str | Path, reader: Callable[[Rows], list[Any]], header: bool | None = None) -> RowFile:
        """Read a file once, keeping nothing: a bad row is found before the first answer is computed.

        `reader`: what makes examples of rows, a task's `read`. Costs a second reading, which is little beside what
        answers take.
        """
        found, grown = cls(existing(path, "file"), reader, header)._looked_through()
        if grown:  # a column that a later part brought is empty in the earlier ones, and may not be
            found, _ = found._looked_through()
        return found

    def __iter__(self) -> Iterator[Part]:
        seen = 0
        for index, rows in enumerate(self._parts()):
            where = f"{self.path}:{rows.lines[0]}-{rows.lines[-1]}"
            seen += len(rows)
            yield Part(index, self.reader(rows), where)
        if seen != self.rows:
            what = f"The file changed while it was read: it had {self.rows} rows, now {seen}."
            raise Failure(what, where=str(self.path), hint="Run it again.")

    def _looked_through(self) -> tuple[RowFile, bool]:
        """All columns and the number of rows, and whether a part brought columns that the first one has not."""
        names, count, grown = dict.fromkeys(self.names), 0, False
        for rows in self._parts():
            grown = grown or (count > 0 and not names.keys() >= set(rows.columns))
            names.update(dict.fromkeys(rows.columns))
            self.reader(_with(rows, tuple(names)))
            count += len(rows)
        if not count:
            raise UserError("The file holds no rows.", where=str(self.path))
        return replace(self, names=tuple(names), rows=count), grown

    def _parts(self) -> Iterator[Rows]:
        for chunk in _cut(iter_records(self.path, header=self.header)):
            yield _with(Rows.collect(str(self.path), chunk), self.names)


@dataclass(frozen=True)
class LineRows:
    """Lines of standard input: they come once, so that an interrupted run cannot go on."""

    lines: Iterable[tuple[int, str]]
    example: Callable[[int, str], Any]
    source: str = "standard input"
    rows: ClassVar[int] = 0
    resumable: ClassVar[bool] = False

    def __iter__(self) -> Iterator[Part]:
        for index, chunk in enumerate(_cut(self.lines)):
            examples = [self.example(number, line) for number, line in chunk]
            yield Part(index, examples, f"{self.source}:{chunk[0][0]}-{chunk[-1][0]}")


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
    fields = [fields_of(row, "\t" in row) for row in full]
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
        return clue.agreed(records, clue.RULES[task], source)
    if task is not None:
        columns = glue_columns(first, task)
        if columns is None:
            what = f"The columns are not those of GLUE's {task}. Columns here: {', '.join(first)}."
            raise UserError(what, where=source, hint="Check the folder, or name the columns yourself.")
        return ((line, columns.canonical(record)) for line, record in records)
    if plain(task_of(dataset)) not in map(plain, known_names()):
        raise UserError(f"There is no data set '{dataset}'.", where="dataset", hint=nearest(dataset, known_names()))
    return squad.located(records, source) if first.keys() >= squad.COLUMNS else records


def recognised(records: Placed, first: Record, kind: str, source: str, labelled: bool = True) -> Placed:
    """Add text, text_pair, label to files that are plainly GLUE's or CLUE's; check answers against offsets."""
    if first.keys() >= squad.COLUMNS:
        return squad.located(records, source) if labelled else records
    if kind == "tsv" and (columns := glue_columns(first)) is not None:
        return ((line, beside(columns.canonical(record), record)) for line, record in records)
    if kind in ("json", "jsonl") and (task := clue_task(first)) is not None:
        rule = clue.RULES[task]
        if not labelled:
            records = ((line, {**record, clue.LABEL: ""}) for line, record in records)
        return clue.agreed(records, lambda record, where: beside(rule(record, where), record), source)
    return records


def glue_columns(record: Record, task: str | None = None) -> glue.GlueColumns | None:
    """Find the columns of one of GLUE's files from its first record; `task` narrows the choice.

    >>> glue_columns({"index": "0", "question": "Who?", "sentence": "He.", "label": "entailment"}).task
    'qnli'
    """
    for known in glue.KNOWN:
        marks = set(known.marks.split(","))
        has_marks = marks <= record.keys() and all(record[name] in values for name, values in known.values.items())
        if task in (None, known.task) and has_marks and (known.others is None or record.keys() <= marks | known.others):
            return known
    return None


def clue_task(record: Record) -> str | None:
    """Name the CLUE task whose records cannot be mistaken for plain ones.

    >>> clue_task({"keyword": [], "abst": "", "label": "1"})
    'csl'
    """
    if {"keyword", "abst"} <= record.keys():
        return "csl"
    target = record.get("target")
    if "text" in record and isinstance(target, Mapping) and "span1_index" in target:
        return "cluewsc2020"
    return "ocnli" if {"sentence1", "sentence2", "genre", "prem_id"} <= record.keys() else None


def beside(canonical: Record, record: Record) -> Record:
    """Put the canonical columns first, then the file's own as far as their names are free."""
    return {**canonical, **{name: value for name, value in record.items() if name not in canonical}}


def _cut(items: Iterable[Any]) -> Iterator[list[Any]]:
    items = iter(items)
    while chunk := list(itertools.islice(items, ROWS)):
        yield chunk


def _with(rows: Rows, names: tuple[str, ...]) -> Rows:
    """The same with columns that only other parts of the file have."""
    if set(names) <= set(rows.columns):
        return rows
    empty: Mapping[str, Any] = dict.fromkeys(names)
    return replace(rows, columns=names, records=tuple({**empty, **record} for record in rows.records))
