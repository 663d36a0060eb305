"""A flow's heartbeat in the store of its runs, for trainings on other machines.

On the flow's own machine the supervisor notices when the flow dies. On other machines nothing does:
a cluster keeps a task running whose flow is gone. So the flow counts up in a small object, and a
worker that sees the same number for a while takes the flow for dead. No clocks are compared.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vinedresser.errors import StoreError
from vinedresser.objects import Location, open_storage
from vinedresser.plain_logs import plain_logger

__all__ = ["beat", "watch_flow"]

_log = plain_logger(__name__)

_KEY = "flow.json"
# Seconds between two heartbeats, and without one until the flow counts as dead.
_EVERY, _PATIENCE = 5.0, 30.0


@contextmanager
def beat(store: Location) -> Iterator[None]:
    """Write the flow's heartbeat to a store for the duration of the context."""

    def write(ended: threading.Event) -> None:
        number = 0
        while True:
            number += 1
            try:
                open_storage(store).put(_KEY, [json.dumps({"sign": number}).encode()])
            except StoreError as error:
                # Workers that cannot read the store draw no conclusion either.
                _log.warning("%s: no heartbeat: %s", store, error)
            if ended.wait(_EVERY):
                return

    with _thread("flow-heartbeat", write):
        yield


@contextmanager
def watch_flow(store: Location, on_silence: Callable[[str], object]) -> Iterator[None]:
    """Watch a flow's heartbeat for the duration of the context.

    Args:
        on_silence: called once, on a thread, with a sentence when the heartbeat has stopped.
    """

    def look(ended: threading.Event) -> None:
        last, since = b"", time.monotonic()
        while not ended.wait(_EVERY):
            try:
                number = open_storage(store).get(_KEY)
            except StoreError:
                # The flow may be alive all the same.
                since = time.monotonic()
                continue
            if number != last:
                last, since = number, time.monotonic()
            elif time.monotonic() - since >= _PATIENCE:
                on_silence(f"its flow has had no heartbeat for {_PATIENCE:.0f} s")
                return

    with _thread("flow-watch", look):
        yield


@contextmanager
def _thread(name: str, target: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function on a thread for the duration of the context; it gets the event of the end."""
    ended = threading.Event()
    thread = threading.Thread(target=target, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
