"""Log lines with text from runs made harmless: no control characters, no secrets.

With ``VINEDRESSER_LOG_FORMAT=json`` each is a JSON object.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from collections.abc import Mapping
from types import MappingProxyType

from vinedresser.errors import ConfigError
from vinedresser.masking import masked_text
from vinedresser.plain_text import visible

__all__ = [
    "LOG_FORMAT",
    "PlainFormatter",
    "format_plainly",
    "json_line",
    "line_formatter",
    "logs_json",
    "plain_logger",
]

LOG_FORMAT = "VINEDRESSER_LOG_FORMAT"
"""Names the format of log lines and messages: "text", the default, or "json"."""


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


class _JsonFormatter(logging.Formatter):
    """Writes a log line as a JSON object; see `json_line`."""

    def format(self, record: logging.LogRecord) -> str:
        level, message = record.levelname.lower(), super().format(record)
        return json_line(message, level, {"logger": record.name}, time=record.created)


def logs_json() -> bool:
    """Return whether log lines and messages are JSON objects.

    Raises:
        ConfigError: the environment variable has an unknown value.
    """
    given = os.environ.get(LOG_FORMAT) or "text"
    if given not in ("text", "json"):
        raise ConfigError(f"{LOG_FORMAT}: must be text or json, not {given!r}")
    return given == "json"


def line_formatter(inner: logging.Formatter | None = None) -> logging.Formatter:
    """Return the formatter of log lines that the environment asks for.

    Args:
        inner: formats a line as text; None: only the message.

    Raises:
        ConfigError: the environment variable has an unknown value.
    """
    return _JsonFormatter() if logs_json() else PlainFormatter(inner)


def json_line(
    message: str,
    level: str = "info",
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    time: float | None = None,
    masked: bool = True,
) -> str:
    """Return a log line as a JSON object, without the end of the line.

    Args:
        message: its message; control characters become visible.
        level: "info", "warning", "error" or "critical".
        more: further fields, as JSON types; those that are None are left out.
        time: seconds since the epoch; None: now.
        masked: whether secrets of the message are masked.

    Returns:
        An object with ``time`` (RFC 3339, UTC), ``level``, ``message`` and the further fields.
    """
    when = dt.datetime.now(dt.UTC) if time is None else dt.datetime.fromtimestamp(time, dt.UTC)
    fields: dict[str, object] = {"time": when.isoformat(timespec="milliseconds"), "level": level}
    fields["message"] = _plain(message) if masked else visible(message)
    for name, value in more.items():
        if value is not None:
            fields[name] = _plain(value) if isinstance(value, str) else value
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def _plain(text: str) -> str:
    return visible(masked_text(text), keep="\n\t")


def format_plainly(package: str) -> None:
    """Have the log handlers of a package use `PlainFormatter`, or on a terminal `line_formatter`.

    Args:
        package: name of the package that defines the handlers, and has installed them.
    """
    known = logging.getLogger().manager.loggerDict.values()
    loggers = [logging.getLogger(), *(one for one in known if isinstance(one, logging.Logger))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        ours = isinstance(handler.formatter, PlainFormatter | _JsonFormatter)
        if type(handler).__module__.startswith(f"{package}.") and not ours:
            # Others send to the pages of the server, which have fields of their own.
            printed = isinstance(handler, logging.StreamHandler)
            kind = line_formatter if printed else PlainFormatter
            handler.setFormatter(kind(handler.formatter))
