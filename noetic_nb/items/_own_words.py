"""The words of a user's message that ask for something: without text that he quotes, forwards, or warns of.

What is left out vouches for nothing: "do not pay US13..." names an account, and wants no payment to it.
"""

from __future__ import annotations

import re
from typing import Final

# Lines that begin what somebody else wrote; it goes on to the end of the message.
_FORWARDED: Final = re.compile(
    r"^\W*(?:(?:begin )?forwarded message|original message|(?:fwd?|wg|tr)\s*:|on .{4,80} wrote:|"
    r"from:\s.*\n\W*(?:sent|date|to|subject):)",
    re.I | re.M,
)
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>.*$", re.M)
_FENCED: Final = re.compile(r"(```|~~~|\"\"\").*?(?:\1|\Z)", re.S)
# A point inside of a value has no space behind it.
_ENDS: Final = re.compile(r"(?<=[.!?;])(?=\s)|(?<=\n)")
_WARNS: Final = re.compile(
    r"\b(?:(?:do|does|must|should|shall|may|can|will|would|please)\s*(?:not|n['’]t)|(?:do|does|must|should|wo|ca)n['’]?t|cannot|never|"
    r"beware|suspicious|scams?|fraud\w*|phishing|worr(?:y|ied)|is (?:it|this|that) (?:safe|real|legit\w*)|"
    r"(?:nicht|kein\w*|niemals|betrug|jamais|pas|nunca))\b",
    re.I,
)
# Of these the rest of the sentence is what he wants.
_WANTS: Final = re.compile(
    r"\b(?:(?:do|does)(?:\s+not|n['’]t)\s+(?:forget|hesitate|fail|worry)|never\s*mind|no\s+worries|(?:why\s+(?:do|not)|can|could|would|wo|will|ca)"
    r"(?:n?['’]?t)?\s+(?:you|we)(?:\s+not)?\b|nicht vergessen|vergiss nicht|n['’]oublie[sz]? pas)\b",
    re.I,
)


def own_words(text: str) -> str:
    """Return a user's message without what he quotes, forwards or warns of.

    Examples
    --------
    >>> own_words("Pay 5 to DE02. Do not pay US13.")
    'Pay 5 to DE02.'
    >>> own_words("Don't forget to pay US13.")
    "Don't forget to pay US13."
    """
    if found := _FORWARDED.search(text):
        text = text[: found.start()]
    text = _FENCED.sub(" ", _QUOTED_LINE.sub(" ", text))
    if not _WARNS.search(text):
        return text
    parts = []
    for sentence in _ENDS.split(text):
        if _WARNS.search(_WANTS.sub(" ", sentence)):
            # A warning that ends in a colon is about all that follows.
            if ":" in sentence and not sentence.split(":", 1)[1].strip():
                break
            continue
        parts.append(sentence)
    return "".join(parts)
