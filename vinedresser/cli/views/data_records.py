"""Views of training data: a single record, and progress over many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vinedresser.cli.views.console import error_console, say
from vinedresser.data.formats.example import decode_example
from vinedresser.data.formats.recognition import looks_like
from vinedresser.data.locating import Found

__all__ = ["counted", "print_record"]

# Characters of text, bytes in hexadecimal digits, and numbers of an array that are shown.
_TEXT, _BYTES, _NUMBERS = 2000, 32, 12


def print_record(found: Found) -> None:
    """Print where a record is, what is wrong with it, and its value, cut to a screen."""
    say(str(found.origin))
    if found.damage:
        say(f"damaged: {found.damage}", style="red")
    if found.value is None and found.damage:
        return
    value = found.value
    if isinstance(value, bytes):
        value = _example(value) or value
        if isinstance(value, dict):
            say("tf.train.Example")
    if not isinstance(value, Mapping):
        say(_shown(value))
        return
    width = max((len(str(name)) for name in value), default=0)
    for name, one in value.items():
        say(f"  {name!s:{width}}   {_shown(one)}")


def _example(content: bytes) -> dict[str, Any]:
    try:
        return dict(decode_example(content))
    except ValueError:
        return {}


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if hasattr(value, "dtype"):
        shape = "x".join(map(str, value.shape))
        numbers = ", ".join(map(str, value.ravel()[:_NUMBERS].tolist()))
        more = ", …" if value.size > _NUMBERS else ""
        return numbers if value.size == 1 else f"{shape} {value.dtype}: {numbers}{more}"
    if isinstance(value, bytes):
        return _shown_bytes(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…   {len(text)} characters"


def _shown_bytes(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    if text and all(letter.isprintable() or letter in "\n\t\r" for letter in text):
        return _shown(text)
    digits = content[:_BYTES].hex(" ")
    more = " …" if len(content) > _BYTES else ""
    return f"{len(content)} bytes: {digits}{more}{looks_like(content[:512])}"


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], object]]:
    """Draw a bar on a terminal while the body runs.

    Args:
        what: what is counted.

    Yields:
        What is to be called with the number done and of all.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        *(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()),
    )
    disabled = not error_console.is_terminal
    with Progress(*columns, console=error_console, transient=True, disable=disabled) as bars:
        row = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(row, completed=done, total=total)
