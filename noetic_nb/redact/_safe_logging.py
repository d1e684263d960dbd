"""Loggers through which no secret gets out."""

from __future__ import annotations

import logging
from typing import Final

from noetic_nb.redact._redaction import redact_text

__all__ = ["safe_logger"]


class _NoSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact_text(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            written = logging.Formatter().formatException(record.exc_info)
            record.exc_text = redact_text(written)
            if record.exc_text != written:  # a handler that formats the exception itself would show it
                record.exc_info = None
        return True


_NO_SECRETS: Final = _NoSecrets()


def safe_logger(name: str) -> logging.Logger:
    """Return the logger of a name; what is logged through it is free of secrets, tracebacks included.

    Examples
    --------
    >>> safe_logger("noetic_nb").name
    'noetic_nb'
    """
    logger = logging.getLogger(name)
    logger.addFilter(_NO_SECRETS)  # once only: adding the same filter again does nothing
    return logger
