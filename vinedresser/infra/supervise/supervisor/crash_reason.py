"""One line that says why a program failed, extracted from its standard error."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST_CHARACTERS = 500
# The first line of what Keras and TensorFlow raise for an error in a layer or a graph; the error
# itself, and its message in bold, are in lines below.
_OF_KERAS = re.compile(r"\w+: (in user code:|Exception encountered when calling .*)$")
_INSIDE = re.compile(r"    (\w*(?:Error|Exception): .*)$")
_BOLD = re.compile(r" *\x1b\[1m(.*?)(?:\x1b\[0m)?$")
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
        # In the message of an error of Keras.
        self._in_message = False

    def feed(self, lines: Iterable[str]) -> list[str]:
        """Process lines of the standard error, in order; return those that belong to an error."""
        told = []
        for line in lines:
            text = _PREFIX.sub("", line, count=1) if line.startswith("[") else line
            if not text or text.isspace():
                continue
            self._last = text
            if self._in_message or self._in_traceback:
                told.append(text)
            if self._in_message:
                self._look_inside(text)
            if text == _HEADER:
                self._in_traceback = True
                told.append(text)
            # Frames and their source are indented; the error is the first line that is not.
            elif (self._in_traceback and not text[0].isspace()) or _HEADLESS.match(text):
                self._in_traceback = False
                if not self._error or not _OF_LAUNCHERS.match(text):
                    self._error = text
                    self._in_message = _OF_KERAS.match(text) is not None
        return told

    def _look_inside(self, line: str) -> None:
        """Replace the error by one in its message, or by the text in bold there."""
        inside, bold = _INSIDE.match(line), _BOLD.match(line)
        if inside is not None:
            self._error = inside[1]
        elif bold is not None:
            self._error = f"{self._error.partition(':')[0]}: {bold[1]}"
        self._in_message = bold is None and line[0].isspace()

    @property
    def error(self) -> str:
        """The line if it is from a traceback; else ""."""
        return self._error

    @property
    def text(self) -> str:
        """The line, or else the last non-blank one, or else ""; at most 500 characters."""
        return (self._error or self._last).strip()[:_MOST_CHARACTERS]
