"""The rule for secrets: text that looks like a credential never reaches a file, a repr, a trace or an exception.

Two nets: a key that names a secret hides its value, and text is searched for the shapes of common credentials, also
behind the escapes of JSON and in JSON inside JSON. Only the secret itself is replaced, never a character beside it.

From the ground up: `marks`, `secret_names`, `shapes`, `private_keys`, `assignments`, `places`, `levels`,
`redaction`; each may know those before it.

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
