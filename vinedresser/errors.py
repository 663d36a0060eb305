"""Every error that vinedresser raises on purpose.

    VinedresserError
    ├── ConfigError (ValueError)            a key, rule, collection or regex that is not right
    ├── MissingDependency (ImportError)     an optional package; the message names the extra
    ├── StoreError (OSError)                the storage below a run refused
    │   ├── KeyMissing (FileNotFoundError)  no such object
    │   ├── KeyTaken (FileExistsError)      an exclusive put found the key in use
    │   └── StoreFull                       no space left
    ├── RunError
    │   ├── NotARun (FileNotFoundError)     nothing was ever captured there
    │   ├── AlreadyARun (FileExistsError)   the directory holds another run
    │   ├── SecondWriter (RuntimeError)     two processes write the same rank
    │   ├── CorruptData (ValueError)            a checksum or a length does not match
    │   ├── StillRunning (RuntimeError)     the run has not ended
    │   ├── UnknownTensor (KeyError)        no tensor of that name; the message has the nearest
    │   └── UnknownStep (LookupError)       the tensor was not captured at that step
    ├── LaunchError (RuntimeError)          a training could not be started
    └── TrackingError (RuntimeError)        the tracking server or its database refused
        └── TrackingAway (ConnectionError)  it is away or locked; another try may succeed

Each is also the builtin that a caller would expect, so that `except FileNotFoundError` works.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AlreadyARun",
    "ConfigError",
    "CorruptData",
    "KeyMissing",
    "KeyTaken",
    "LaunchError",
    "MissingDependency",
    "NotARun",
    "RunError",
    "SecondWriter",
    "StillRunning",
    "StoreError",
    "StoreFull",
    "TrackingAway",
    "TrackingError",
    "UnknownStep",
    "UnknownTensor",
    "VinedresserError",
    "did_you_mean",
]


class VinedresserError(Exception):
    """Base of all errors raised on purpose; the command line prints it as one line."""


class ConfigError(VinedresserError, ValueError):
    """A configuration key, rule, collection or pattern is not right; nothing was started."""


class MissingDependency(VinedresserError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class StoreError(VinedresserError, OSError):
    """The storage below a run refused an operation."""


class KeyMissing(StoreError, FileNotFoundError):
    """There is no object under this key."""


class KeyTaken(StoreError, FileExistsError):
    """An exclusive put found an object already under its key."""


class StoreFull(StoreError):
    """The storage has no space left; what was committed before stays readable."""


class RunError(VinedresserError):
    """Base of the errors about one run."""


class NotARun(RunError, FileNotFoundError):
    """The place holds no run."""


class AlreadyARun(RunError, FileExistsError):
    """The place already holds a run, and runs are never overwritten."""


class SecondWriter(RunError, RuntimeError):
    """Another process committed under this rank: two writers share one run."""


class CorruptData(RunError, ValueError):
    """Bytes on disk do not match their checksum or length."""


class StillRunning(RunError, RuntimeError):
    """The run has not ended, or somebody is about to start it."""


class UnknownTensor(RunError, KeyError):
    """The run has no tensor of this name."""

    def __str__(self) -> str:
        # A KeyError would put its message in quotes.
        return str(self.args[0])


class UnknownStep(RunError, LookupError):
    """The tensor was not captured at this step, mode and rank."""


class LaunchError(VinedresserError, RuntimeError):
    """A training could not be started."""


class TrackingError(VinedresserError, RuntimeError):
    """The tracking server or its database refused or is away."""


class TrackingAway(TrackingError, ConnectionError):
    """The tracking server is away or its database locked; another try may succeed."""


def did_you_mean(word: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return "; did you mean a, b?" with the nearest known words, or "" when none is near.

    Args:
        word: what the user wrote.
        known: what would have been right.
        most: how many suggestions at the most.
    """
    near = difflib.get_close_matches(word, list(known), n=most, cutoff=0.6)
    return f"; did you mean {', '.join(near)}?" if near else ""
