"""A flow's sign of life in the store, for its trainings on other machines.

Where a training runs beside its flow the supervisor sees when that dies. Elsewhere nothing tells:
an engine keeps a task at work whose flow is gone. So the flow counts up in a small object, and who
sees no other number for a while takes it for dead. No clocks are compared.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vinedresser.errors import StoreError
from vinedresser.store.storage import Location, open_storage

__all__ = ["gives_signs", "watches_for_signs"]

_log = logging.getLogger(__name__)

_KEY = "flow.json"
# Seconds between two signs, and without one until the flow counts as dead.
_EVERY, _PATIENCE = 5.0, 30.0


@contextmanager
def gives_signs(store: Location) -> Iterator[None]:
    """Give signs of life in a store as long as this goes on."""
    ended = threading.Event()

    def beat() -> None:
        number = 0
        while True:
            number += 1
            try:
                open_storage(store).put(_KEY, [json.dumps({"sign": number}).encode()])
            except StoreError as error:
                # Who cannot read the store either draws no conclusion from it.
                _log.warning("%s: no sign of life: %s", store, error)
            if ended.wait(_EVERY):
                return

    thread = threading.Thread(target=beat, name="flow-sign", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def watches_for_signs(store: Location, on_silence: Callable[[str], object]) -> Iterator[None]:
    """Look for a flow's signs of life as long as this goes on.

    Args:
        store: of the flow.
        on_silence: called once with a sentence, on a thread, when there are none any more.
    """
    ended = threading.Event()

    def look() -> None:
        last, since = b"", time.monotonic()
        while not ended.wait(_EVERY):
            try:
                sign = open_storage(store).get(_KEY)
            except StoreError:
                # It may give signs all the same.
                since = time.monotonic()
                continue
            if sign != last:
                last, since = sign, time.monotonic()
            elif time.monotonic() - since >= _PATIENCE:
                on_silence(f"its flow has given no sign of life for {_PATIENCE:.0f} s")
                return

    thread = threading.Thread(target=look, name="flow-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
