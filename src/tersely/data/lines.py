"""Lines of a UTF-8 text file with their numbers; what cannot be read is said with its place."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError, existing

Placed = tuple[int, str]

PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def lines(path: str | Path) -> Iterator[Placed]:
    r"""Give (number, line with its line feed), split at line feeds only; the byte-order mark is taken off.

    Text may hold U+2028, U+0085 or a vertical tab, at which `str.splitlines` would cut it.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_bytes("one\u2028still one\ntwo".encode())
    >>> list(lines(file))
    [(1, 'one\u2028still one\n'), (2, 'two')]
    """
    offset, blank = 0, True
    with opened(path) as file:
        for number, raw in enumerate(file, start=1):
            if number == 1 and raw.startswith(codecs.BOM_UTF8):
                raw = raw[len(codecs.BOM_UTF8) :]
                offset = len(codecs.BOM_UTF8)
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf_8(error, path, number, offset) from error
            offset += len(raw)
            if blank and line.strip():
                blank = False
            yield number, line
    if blank:
        raise UserError("The file is empty.", where=str(path))


def bare_lines(path: str | Path) -> Iterator[Placed]:
    """Give (number, line) without the line's end, be it LF or CR LF."""
    for number, line in lines(path):
        yield number, line.removesuffix("\n").removesuffix("\r")


def text_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Read plain text: give (line, {"text": line}), blank lines passed over.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_text("good\n\nbad\n")
    >>> list(text_records(file))
    [(1, {'text': 'good'}), (3, {'text': 'bad'})]
    """
    for number, line in bare_lines(path):
        if line.strip():
            yield number, {"text": line}


def read_text(path: str | Path) -> str:
    """Give the text of a whole file, byte-order mark taken off."""
    return "".join(line for _, line in lines(path))


def beginning(path: str | Path, size: int = 1 << 16) -> str:
    """Give the first whole lines of a file, to guess its format from; bytes that are not UTF-8 are marked."""
    with opened(path) as file:
        head = file.read(size)
        more = bool(file.read(1))
    if more and b"\n" in head:
        head = head[: head.rindex(b"\n")]
    return head.decode("utf-8-sig", errors="replace")


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading; a file that is missing, a folder or packed is refused."""
    path = existing(path, "file")
    if path.is_dir():
        raise UserError("This is a folder, not a file.", where=str(path), hint="Give a file, or the split to read.")
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"The file cannot be read: {error.strerror}.", where=str(path)) from error
    with file:
        head = file.read(6)
        for mark, name in PACKED.items():
            if head.startswith(mark):
                raise UserError(f"The file is packed ({name}).", where=str(path), hint="Unpack it first.")
        file.seek(0)
        yield file


def not_utf_8(error: UnicodeDecodeError, path: str | Path, number: int, offset: int) -> UserError:
    """Say which byte is wrong; `offset` is where the line starts in the file."""
    encoding = "UTF-16" if number == 1 and error.object.startswith(UTF_16) else "ENCODING"
    what = f"The file is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {offset + error.start}."
    return UserError(what, where=f"{path}:{number}", hint=f"Convert it: iconv -f {encoding} -t UTF-8.")
