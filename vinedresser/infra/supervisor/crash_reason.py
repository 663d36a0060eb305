"""One line that says why a program failed, extracted from its standard error."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST_CHARACTERS = 500
# Distributed torch prefixes each line with its rank.
_PREFIX = re.compile(r"\[rank\d+\]: ?")
_HEADER = "Traceback (most recent call last):"
# Python prints syntax errors of the main script without the header.
_HEADLESS = re.compile(r"(SyntaxError|IndentationError|TabError): ")
# What torchrun and accelerate raise after the error of a process that they started.
_OF_LAUNCHERS = re.compile(
    r"torch\.distributed\..*\.ChildFailedError:|subprocess\.CalledProcessError: "
)


class CrashReason:
    """Finds the last line of the last traceback, such as "ValueError: …".

    An error that only says that a started process failed does not replace that of the process.
    """

    def __init__(self) -> None:
        self._in_traceback = False
        self._error = ""
        self._last = ""

    def feed(self, lines: Iterable[str]) -> None:
        """Process lines of the standard error, in order."""
        for line in lines:
            text = _PREFIX.sub("", line, count=1) if line.startswith("[") else line
            if not text or text.isspace():
                continue
            self._last = text
            if text == _HEADER:
                self._in_traceback = True
            # Frames and their source are indented; the error is the first line that is not.
            elif (self._in_traceback and not text[0].isspace()) or _HEADLESS.match(text):
                self._in_traceback = False
                if not self._error or not _OF_LAUNCHERS.match(text):
                    self._error = text

    @property
    def text(self) -> str:
        """The line, or else the last non-blank one, or else ""; at most 500 characters."""
        return (self._error or self._last).strip()[:_MOST_CHARACTERS]
