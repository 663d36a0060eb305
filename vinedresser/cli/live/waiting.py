"""Says why a running training has not answered yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from vinedresser.errors import VinedresserError, did_you_mean

if TYPE_CHECKING:
    from vinedresser.queries.every import Every
    from vinedresser.store.reading.reader import Run

__all__ = ["explained_wait"]

# Seconds without an answer after which that is explained.
_SOON = 10.0


@contextmanager
def explained_wait(run: Run, every: Every, rank: int) -> Iterator[Event]:
    """Say on stderr why there is no answer, if there is none after ten seconds.

    Args:
        every: what closes the windows of the query.
        rank: the rank that is asked, or one of them.

    Yields:
        To be set with the first answer.
    """
    answered = Event()

    def explain() -> None:
        if answered.wait(_SOON):
            return
        try:
            told = _reason(run, every, rank)
        except VinedresserError:
            # The query itself fails likewise, and says so.
            return
        if not answered.is_set():
            from vinedresser.cli.views.console import error_console, say

            say(f"{run.path}: no answer yet: {told}", error_console)

    Thread(target=explain, name="vinedresser-waiting", daemon=True).start()
    try:
        yield answered
    finally:
        answered.set()


def _reason(run: Run, every: Every, rank: int) -> str:
    """Return why a query has not been answered.

    Raises:
        VinedresserError: the training does not respond.
    """
    from vinedresser.queries.listing import names_to_ask

    held = [control.kind for control in run.controls() if control.kind in ("pause", "resume")]
    if held and held[-1] == "pause":
        return "the training is paused"
    event = every.event or every.kind
    events = names_to_ask(run, rank=rank, live=True).events
    if every.kind == "event" and event not in events:
        hint = did_you_mean(event, ("step", "epoch", "evaluation", "flush", *events))
        return f"its script has not called hook.event({event!r}) so far{hint}"
    if every.kind == "flush":
        return "its windows are closed by flush_live"
    return f"its first window of {every} has not ended"
