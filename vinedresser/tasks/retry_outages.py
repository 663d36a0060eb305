"""What reads a run on an object store begins again when the store has been away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from vinedresser.errors import StoreError
from vinedresser.store.storage import Location

__all__ = ["retry_outages"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds between two tries; with the client's own patience they last for some minutes.
_PAUSES = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0)


def retry_outages(action: Callable[[], T], location: Location) -> T:
    """Do something that reads a run, again and again while its store is away.

    Args:
        action: what to do; doing it twice is harmless.
        location: of the run; one in a directory gets one try.

    Returns:
        What the action returns.

    Raises:
        StoreError: the store refused, and did so to the last.
    """
    if isinstance(location, str):
        for pause in _PAUSES:
            try:
                return action()
            except StoreError as error:
                _log.debug("%s: tried again in %g s: %s", location, pause, error)
                time.sleep(pause)
    return action()
