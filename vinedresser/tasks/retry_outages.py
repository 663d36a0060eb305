"""Retrying to read a run while its object store is unavailable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from vinedresser.errors import StoreError
from vinedresser.objects import Location
from vinedresser.objects.retrying import retry
from vinedresser.plain_logs import plain_logger

_log = plain_logger(__name__)

T = TypeVar("T")

# Seconds between two tries; with the client's own retries they last for some minutes.
_PAUSES = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0)


def retry_outages(action: Callable[[], T], location: Location) -> T:
    """Call a function that reads a run, again while its store is unavailable; return its result.

    Args:
        action: the function; calling it twice must be harmless.
        location: location of the run; in a directory there is only one call.

    Raises:
        StoreError: the store refused the last call, too.
    """
    if isinstance(location, Path):
        return action()
    return retry(
        action,
        StoreError,
        _PAUSES,
        on_failure=lambda error: _log.debug("%s: retrying: %s", location, error),
    )
