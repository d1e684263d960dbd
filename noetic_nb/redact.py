"""The one rule for secrets: what looks like a credential never reaches a file, a repr, a trace or an exception.

Two nets: a key that names a secret hides its whole value, and text is searched for the shapes of common credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["REDACTED", "redact", "redact_text"]

REDACTED: Final = "[redacted]"

_SECRET_KEY: Final = re.compile(
    r"(?ix) (^|[_\-.\s]|(?<=[a-z])(?-i:(?=[A-Z])))"
    r"(api[_\-]?key|apikey|authorization|auth[_\-]?token|access[_\-]?token|refresh[_\-]?token|bearer|secret|password"
    r"|passwd|passphrase|private[_\-]?key|client[_\-]?secret|session[_\-]?key|set[_\-]?cookie|cookie|x[_\-]api[_\-]key)"
    r"($|[_\-.\s]|(?-i:[A-Z]))"
)

# Shapes documented by the issuers; each is long enough that ordinary prose does not match.
_SECRET_TEXT: Final = re.compile(
    r"""(?x)
      \bsk-(?:[A-Za-z]+-)*[A-Za-z0-9_\-]{16,}           # OpenAI, Anthropic, OpenRouter
    | \b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}        # GitHub
    | \bgithub_pat_[A-Za-z0-9_]{30,}
    | \bhf_[A-Za-z0-9]{30,}                             # Hugging Face
    | \bgsk_[A-Za-z0-9]{30,}                            # Groq
    | \bxai-[A-Za-z0-9]{30,}
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                    # Slack
    | \bAIza[A-Za-z0-9_\-]{30,}                         # Google
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                     # AWS access key id
    | \beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}   # JSON web token
    | -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END\ [A-Z\ ]*PRIVATE\ KEY-----|\Z)
    """
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/\-]{12,}=*")
_ASSIGNED: Final = re.compile(
    r"(?i)\b([A-Z0-9_]*(?:api[_-]?key|secret|password|passwd|access[_-]?token|auth[_-]?token))(\s*[=:]\s*)"
    r"(\"[^\"\s]{4,}\"|'[^'\s]{4,}'|[^\s\"',;&}]{6,})"
)


def redact_text(text: str) -> str:
    """Replace what looks like a credential inside text.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The same text with credentials replaced by ``[redacted]``.

    Examples
    --------
    >>> redact_text("curl -H 'Authorization: Bearer abcdefghijklmnop'")
    "curl -H 'Authorization: Bearer [redacted]'"
    >>> redact_text("OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwx")
    'OPENAI_API_KEY=[redacted]'
    """
    if len(text) < 8:
        return text
    text = _SECRET_TEXT.sub(REDACTED, text)
    text = _BEARER.sub(lambda m: f"{m.group(1)} {REDACTED}", text)
    return _ASSIGNED.sub(lambda m: f"{m.group(1)}{m.group(2)}{REDACTED}", text)


def redact(value: Any) -> Any:
    """Return JSON-like data with every secret replaced; the value itself is left alone.

    Parameters
    ----------
    value : object
        Mappings, lists, tuples, text and scalars, nested.

    Returns
    -------
    object
        The same shape; values below a key that names a secret, and credentials inside text, become ``[redacted]``.

    Examples
    --------
    >>> redact({"api_key": "k", "note": "plain", "usage": {"input_tokens": 3}})
    {'api_key': '[redacted]', 'note': 'plain', 'usage': {'input_tokens': 3}}
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            key: REDACTED if isinstance(key, str) and item is not None and _SECRET_KEY.search(key) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value
