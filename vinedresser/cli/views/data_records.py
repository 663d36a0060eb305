"""Views of training data: a single record, progress over many, and what reading costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vinedresser.cli.views.console import console, error_console, plain_table, say
from vinedresser.data.benchmark import Benchmark, Settings
from vinedresser.data.formats.example import decode_example
from vinedresser.data.formats.recognition import looks_like
from vinedresser.data.locating import Found

__all__ = ["counted", "print_benchmark", "print_record"]

# Characters of text, bytes in hexadecimal digits, and numbers of an array that are shown.
_TEXT, _BYTES, _NUMBERS = 2000, 32, 12
# What may help, by the slowest stage.
_ADVICE = {
    "waiting": "the slowest stage is waiting for bytes: larger objects or faster storage may help",
    "parsing": "the slowest stage is checking and dividing records: workers of a TorchLoader may "
    "help",
    "decoding": "the slowest stage is the decoder: workers of a TorchLoader may help",
}


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


def print_benchmark(found: Benchmark) -> None:
    """Print a table of the ways, and the proposed settings."""
    say(
        f"{found.format}   {found.records} records   {found.size / 1e6:.1f} MB   "
        f"{found.objects} objects"
    )
    table = plain_table()
    for name in ("way", "records/s", "MB/s", "gap p50 ms", "p95", "max", "p95/p50", "mostly"):
        left = name in ("way", "mostly")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for one in found.measured:
        records = f"{one.records_per_second:.0f}" if one.records_per_second else ""
        gaps = [*(f"{1e3 * gap:.1f}" for gap in one.gaps), f"{one.choppiness:.1f}"]
        stage = max(one.stages, key=lambda name: one.stages[name], default="")
        share = f"{stage} {one.stages[stage]:.0%}" if stage else ""
        table.add_row(one.way, records, f"{one.bytes_per_second / 1e6:.1f}", *gaps, share)
    console.print(table)
    if found.proposed == Settings():
        say("the default settings of Dataset are as fast as any of these")
    else:
        chosen = ", ".join(f"{name}={value}" for name, value in found.proposed._asdict().items())
        say(f"faster than the default settings: Dataset(..., {chosen})")
    say(_ADVICE[found.slowest_stage])
    if found.second_requests:
        say(f"{found.second_requests} requests were slow, and sent a second time")


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], object]]:
    """Draw a bar on a terminal while the body runs.

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
