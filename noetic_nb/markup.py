"""Display of untrusted text: model text, tool output, file names, rule ids and errors are data.

Limited in length, without credentials; hidden characters are spelled out. Only `escape` makes text safe inside HTML.
"""

from __future__ import annotations

import json
from typing import Final

from noetic_nb.errors import printable
from noetic_nb.redact import MARGIN, clip_data, redact, redact_head, redact_text

__all__ = ["NAME_LENGTH", "clip", "dollars", "escape", "heading", "html_page", "plain", "plain_data", "plain_line"]

# Nothing is fetched and nothing runs, whatever the texts in the page contain.
_POLICY: Final = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'\">"
)

# A label should be readable at a glance, and must not dominate the message that carries it to a page.
NAME_LENGTH: Final = 80


def escape(value: object) -> str:
    r"""Return a value's text as HTML that is safe between tags and inside double-quoted attributes.

    Control characters, lone surrogates and bidirectional overrides are shown as ``U+XXXX``.

    Examples
    --------
    >>> escape('<img src=x onerror="alert(1)">')
    '&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'
    >>> escape("a\u202eb")
    'a[U+202E]b'
    """
    import html  # has a table of two thousand names, which most processes never need

    return printable(html.escape(str(value), quote=True))


def heading(title: str) -> str:
    """Return the title of a view as HTML: a heading for assistive technology. An ``h3`` would join the notebook's contents.

    Examples
    --------
    >>> heading("Memory")
    '<p class="nn-title" role="heading" aria-level="3"><strong>Memory</strong></p>'
    """
    return f'<p class="nn-title" role="heading" aria-level="3"><strong>{escape(title)}</strong></p>'


def html_page(title: str, body: str, sheet: str = ":root { color-scheme: light dark; } body { margin: 16px; }") -> str:
    """Return a whole page; `title` is text, `body` is HTML, and `sheet` its style.

    Examples
    --------
    >>> html_page("a < b", "<p>42</p>").partition("<title>")[2].partition("<meta")[0]
    'a &lt; b</title>'
    """
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_POLICY}<title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{sheet}</style></head>'
        f"<body>{body}</body></html>\n"
    )


def clip(text: str, length: int) -> str:
    """Return text of at most `length` characters; an ellipsis replaces the cut middle.

    Examples
    --------
    >>> clip("working_memory", 9), clip("notes", 9)
    ('work…mory', 'notes')
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - (length - head - 1) :]}"


def dollars(cost: float) -> str:
    """Return a cost in US dollars; a small cost is never shown as zero.

    Examples
    --------
    >>> dollars(12.5), dollars(0.0123), dollars(0.0000123)
    ('$12.5000', '$0.0123', '$0.000012')
    """
    return f"${cost:,.4f}" if cost == 0 or abs(cost) >= 0.001 else f"${float(f'{cost:.2g}'):.10f}".rstrip("0")


def plain(value: object, length: int = NAME_LENGTH) -> str:
    r"""Return a value as short text in which every character is visible and no credential is.

    Examples
    --------
    >>> plain("a<b\u202e")
    'a<b[U+202E]'
    """
    return _shown(_clean(value, length), length)


def plain_line(value: object, length: int = NAME_LENGTH) -> str:
    r"""Return a value as one line of such text, cut at its end.

    Examples
    --------
    >>> plain_line("What is\n  the state of order A17?", 20)
    'What is the state o…'
    """
    line = " ".join(plain(value, 4 * length).split())  # whitespace is collapsed, so more is read than shown
    return line if len(line) <= length else f"{line[: length - 1]}…"


def plain_data(value: object, length: int) -> str:
    """Return JSON-like data as such text.

    Examples
    --------
    >>> plain_data({"path": "/etc", "password": "hunter2"}, 80)
    '{"path": "/etc", "password": "[redacted]"}'
    """
    small, is_cut = clip_data(value, length + MARGIN)
    # Redacted as data first: in text, the key that identifies a secret is harder to find.
    text = json.dumps(redact(small), ensure_ascii=False, default=_text)
    return _shown(f"{text[: length - 1]}…" if is_cut else _clean(text, length), length)


def _shown(text: str, length: int) -> str:
    if len(text) <= length and text.isascii() and text.isprintable():
        return text  # the usual case
    # Cut again, because characters that are spelled out take more room.
    import html

    return clip(html.unescape(escape(clip(text, length))), length)


def _clean(value: object, length: int) -> str:
    # A text is cut generously, redacted, and then cut to its length: half a credential is not recognisable, and
    # searching megabytes for a label takes seconds.
    text = _text(value)
    if len(text) <= length + MARGIN:
        return redact_text(text)
    return f"{redact_head(text, length)[: length - 1]}…"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # a number with too many digits, or a user's class
        return f"<{type(value).__name__}>"
