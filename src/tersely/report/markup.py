"""HTML and SVG as text: what is not markup already is escaped, so that a row's text cannot become part of the page."""

from __future__ import annotations

import html
import re

# What XML does not allow, lone surrogates among it: it would break the page for strict readers.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
VOID = {"meta", "link", "br"}


class Markup(str):
    """Text that is markup, made by `tag` from parts that were escaped."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Make plain text safe; markup stays as it is.

    >>> escape('<b> & "c"'), escape(Markup("<br>"))
    ('&lt;b&gt; &amp; &quot;c&quot;', '<br>')
    """
    return text if isinstance(text, Markup) else Markup(html.escape(_NOT_TEXT.sub("\ufffd", text)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_` is class, underscores are hyphens, None leaves an attribute out.

    >>> tag("a", "<3", class_="x", aria_label='"', title=None)
    '<a class="x" aria-label="&quot;">&lt;3</a>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    inner = "".join(f' {key}="{escape(_text(value))}"' for key, value in named.items())
    if name in VOID:
        return Markup(f"<{name}{inner}>")
    return Markup(f"<{name}{inner}>{''.join(map(escape, children))}</{name}>")


def join(*parts: str, by: str = "") -> Markup:
    """Several pieces as one."""
    return Markup(escape(by).join(escape(part) for part in parts if part))


def _text(value: str | float) -> str:
    """Coordinates to a tenth: a page is read, not measured."""
    return value if isinstance(value, str) else f"{round(value, 1):g}"
