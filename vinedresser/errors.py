"""Every error that vinedresser raises on purpose.

    VinedresserError
    ├── ConfigError (ValueError)            an invalid key, rule, collection or regex
    ├── MissingDependency (ImportError)     an optional package is not installed
    ├── StoreError (OSError)                the storage refused an operation
    │   ├── KeyMissing (FileNotFoundError)  no such object
    │   ├── KeyTaken (FileExistsError)      an exclusive put found an existing object
    │   ├── NotAFile (and CorruptData)      a link or FIFO in place of a file
    │   ├── SourceChanged                   training data was replaced while it was read
    │   ├── RunRemoved                      the run directory was removed while it was in use
    │   ├── StoreFull                       no space left
    │   └── UploadFailed                    the upload process does not run
    ├── RunError
    │   ├── NotARun (FileNotFoundError)     the location holds no run
    │   ├── AgentAway (ConnectionError)     no running training listens to questions
    │   ├── AlreadyARun (FileExistsError)   the location already holds a run
    │   ├── SecondWriter (RuntimeError)     another process writes the same rank
    │   ├── CorruptData (ValueError)            a checksum or a length does not match
    │   ├── StillRunning (RuntimeError)     the run has not ended
    │   ├── UnknownRun (KeyError)           the store has no run of this name
    │   ├── UnknownStream (KeyError)        the run has no stored stream of this name
    │   ├── UnknownTensor (KeyError)        no such tensor; the message suggests similar names
    │   └── UnknownStep (LookupError)       the tensor was not captured at that step
    ├── DamagedData (ValueError)            a record of training data cannot be read
    ├── PruningError (ValueError)           a model or plan does not allow a pruning
    ├── QueryError (ValueError)             a query cannot be answered, or costs too much
    ├── DriftError (ValueError)             a baseline, window or state does not allow monitoring
    ├── SaliencyError (ValueError)          a model or input does not allow a saliency map
    ├── LaunchError (RuntimeError)          a training could not be started
    └── TrackingError (RuntimeError)        the tracking server or its database refused
        ├── TrackingAway (ConnectionError)  it is unavailable or locked; retrying may succeed
        └── UntrustedTracking (PermissionError)  only a record names it, and not the user

Each is also the built-in error that callers expect, so that `except FileNotFoundError` works.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from vinedresser.masking import masked_text
from vinedresser.plain_text import visible

__all__ = [
    "AgentAway",
    "AlreadyARun",
    "ConfigError",
    "CorruptData",
    "DamagedData",
    "DriftError",
    "KeyMissing",
    "KeyTaken",
    "LaunchError",
    "MissingDependency",
    "NotAFile",
    "NotARun",
    "PruningError",
    "QueryError",
    "RunError",
    "RunRemoved",
    "SaliencyError",
    "SecondWriter",
    "SourceChanged",
    "StillRunning",
    "StoreError",
    "StoreFull",
    "TrackingAway",
    "TrackingError",
    "UnknownRun",
    "UnknownStep",
    "UnknownStream",
    "UnknownTensor",
    "UntrustedTracking",
    "UploadFailed",
    "VinedresserError",
    "did_you_mean",
]


class VinedresserError(Exception):
    """Base of all errors raised on purpose; the command line prints it as one line.

    As text it shows control characters of what it names, such as a tensor, as escapes.
    """

    def __str__(self) -> str:
        # KeyError would quote its message.
        told = str(self.args[0]) if len(self.args) == 1 else super().__str__()
        return visible(told, keep="\n\t")


class ConfigError(VinedresserError, ValueError):
    """A configuration key, rule, collection or pattern is invalid; nothing was started."""


class MissingDependency(VinedresserError, ImportError):
    """An optional package is not installed; the message names the extra that provides it."""


class StoreError(VinedresserError, OSError):
    """The storage refused an operation."""


class KeyMissing(StoreError, FileNotFoundError):
    """There is no object under this key."""


class KeyTaken(StoreError, FileExistsError):
    """An exclusive put found an object already under its key."""


class StoreFull(StoreError):
    """The storage has no space left; committed data stays readable."""


class RunRemoved(StoreError):
    """The run directory was removed, or moved, while something was about to write to it."""


class SourceChanged(StoreError):
    """An object with training data was replaced while it was in use."""


class UploadFailed(StoreError):
    """The process that uploads a run cannot be started, or is killed again and again."""


class RunError(VinedresserError):
    """Base of all errors about one run."""


class NotARun(RunError, FileNotFoundError):
    """The location holds no run."""


class AgentAway(RunError, ConnectionError):
    """No running training listens to questions."""


class AlreadyARun(RunError, FileExistsError):
    """The location already holds a run, and runs are never overwritten."""


class SecondWriter(RunError, RuntimeError):
    """Another process writes the same rank of the run."""


class CorruptData(RunError, ValueError):
    """Stored data does not match its checksum, length or format."""


class NotAFile(StoreError, CorruptData):
    """Something else, such as a symbolic link, a FIFO or a folder, is in place of a file.

    It is damage of the run, not an outage of its storage, and handled as such.
    """


class StillRunning(RunError, RuntimeError):
    """The run has not ended, or is about to start."""


class UnknownRun(RunError, KeyError):
    """The store has no run of this name."""


class UnknownStream(RunError, KeyError):
    """The run has no stored stream of this name."""


class UnknownTensor(RunError, KeyError):
    """The run has no tensor of this name."""


class UnknownStep(RunError, LookupError):
    """The tensor was not captured at this step, mode and rank."""


class LaunchError(VinedresserError, RuntimeError):
    """A training could not be started."""


class DamagedData(VinedresserError, ValueError):
    """A record of training data, or a whole object, cannot be read.

    Args:
        uri: path or URL of the object.
        offset: byte offset of the record in it; in the decompressed data if it is compressed.
        record: number of the record in it, from 0.
        reason: what is wrong.
    """

    def __init__(self, uri: str, offset: int, record: int, reason: str) -> None:
        super().__init__(f"{uri}: record {record} at byte {offset}: {reason}")
        self.uri = uri
        self.offset = offset
        self.record = record
        self.reason = reason

    def __reduce__(self) -> tuple[type[DamagedData], tuple[str, int, int, str]]:
        # By default, it would be created again from its message alone.
        return DamagedData, (self.uri, self.offset, self.record, self.reason)


class PruningError(VinedresserError, ValueError):
    """A model, plan or target does not allow the pruning that was asked for."""


class SaliencyError(VinedresserError, ValueError):
    """A model, input or target does not allow the saliency map that was asked for."""


class QueryError(VinedresserError, ValueError):
    """A query cannot be answered with what the training offers, or costs too much."""


class DriftError(VinedresserError, ValueError):
    """A baseline, window or state does not allow the monitoring that was asked for."""


class TrackingError(VinedresserError, RuntimeError):
    """The tracking server or its database refused or is unavailable.

    Args:
        message: names the tracking URI, in which a password is masked.
    """

    def __init__(self, message: str) -> None:
        super().__init__(masked_text(message))


class TrackingAway(TrackingError, ConnectionError):
    """The tracking server is unavailable or its database locked; retrying may succeed."""


class UntrustedTracking(TrackingError, PermissionError):
    """Records name a tracking URI that this user has not used for their store."""


# Fewer letters begin too many words.
_SHORTEST = 3
_MOST_SUGGESTIONS = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean a, b?" with the most similar known words, or "" if none is similar.

    Words that begin with the user's come first.

    Args:
        word: the user's spelling.
        known: the valid words.
    """
    known = list(known)
    begun = [one for one in known if len(word) >= _SHORTEST and one.startswith(word)]
    close = difflib.get_close_matches(word, known, n=_MOST_SUGGESTIONS, cutoff=0.6)
    near = [*dict.fromkeys((*begun, *close))][:_MOST_SUGGESTIONS]
    return f"; did you mean {', '.join(near)}?" if near else ""
