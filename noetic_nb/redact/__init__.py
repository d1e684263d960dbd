"""The rule for secrets: text that looks like a credential never reaches a file, a repr, a trace or an exception.

Two methods are used: a key that names a secret hides its value, and text is searched for the forms of common credentials,
also within JSON escapes and in JSON inside JSON. Only the secret itself is replaced, without adjacent characters.

Modules in order of dependency: `marks`, `secret_names`, `shapes`, `private_keys`, `assignments`, `places`, `levels`,
`redaction`; each may import earlier ones.

References
----------
.. [1] docs/behaviour/secrets.md.
"""

from noetic_nb.redact._redaction import MARGIN, Redaction, clip_data, redact, redact_head, redact_text, safe_logger
from noetic_nb.redact._secret_names import REDACTED, is_secret_name

__all__ = [
    "MARGIN", "REDACTED", "Redaction", "clip_data", "is_secret_name", "redact", "redact_head", "redact_text", "safe_logger",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
