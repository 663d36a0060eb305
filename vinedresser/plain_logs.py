"""Log lines with text from runs made harmless: no control characters, no secrets."""

from __future__ import annotations

import logging

from vinedresser.masking import masked_text
from vinedresser.plain_text import visible

__all__ = ["PlainFormatter", "format_plainly", "plain_logger"]


class _Plain(logging.Filter):
    """Makes a message plain for all handlers, which may be those of the user's program."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _plain(record.getMessage()), ()
        return True


def plain_logger(name: str) -> logging.Logger:
    """Return a logger of this package.

    Args:
        name: its name, that of the module.
    """
    logger = logging.getLogger(name)
    if not logger.filters:
        logger.addFilter(_Plain())
    return logger


class PlainFormatter(logging.Formatter):
    """Shows the control characters of a log line, and masks what looks like a secret.

    Args:
        inner: formats the line, with its traceback; None: only the message.
    """

    def __init__(self, inner: logging.Formatter | None = None) -> None:
        super().__init__()
        self._inner = inner or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a record."""
        return _plain(self._inner.format(record))


def _plain(text: str) -> str:
    return visible(masked_text(text), keep="\n\t")


def format_plainly(package: str) -> None:
    """Have the log handlers of a package use `PlainFormatter`.

    Args:
        package: name of the package that defines the handlers, and has installed them.
    """
    known = logging.getLogger().manager.loggerDict.values()
    loggers = [logging.getLogger(), *(one for one in known if isinstance(one, logging.Logger))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        ours = isinstance(handler.formatter, PlainFormatter)
        if type(handler).__module__.startswith(f"{package}.") and not ours:
            handler.setFormatter(PlainFormatter(handler.formatter))
