"""The one HTML escape. Model text, tool output, file names, rule ids and errors are data wherever they are shown."""

from __future__ import annotations

import html
import re
from typing import Final

__all__ = ["escape"]

# C0/C1 controls and bidirectional overrides can hide or reorder what a reader sees; they are shown as code points.
_INVISIBLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


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
    return _INVISIBLE.sub(lambda m: f"[U+{ord(m.group()):04X}]", html.escape(str(value), quote=True))
