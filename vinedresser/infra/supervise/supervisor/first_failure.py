"""The rank that failed first, and not because of another one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

__all__ = ["Ended", "first_failure", "is_victim"]


class Ended(Protocol):
    """A rank that has ended.

    Attributes:
        lost: why its end is not known, one sentence; "" if it is.
    """

    number: int
    lost: str

    @property
    def code(self) -> int:
        """Its exit code, or the negative number of the signal that ended it."""

    @property
    def said(self) -> str:
        """The last line that its standard error says about a failure."""

    @property
    def failed_at(self) -> float:
        """When it failed, by the monotonic clock of this machine."""


E = TypeVar("E", bound=Ended)

# The last line of a rank whose peer is gone, by library.
_VICTIM = re.compile(
    "|".join(
        (
            # gloo
            r"Connection closed by peer",
            r"Connection reset by peer",
            r"Broken pipe",
            r"gloo/transport/.*(Timed out|timed out|Connection refused|remote)",
            # torch.distributed: its store, which rank 0 holds, and NCCL
            r"torch\.distributed\.(DistNetworkError|DistStoreError)",
            r"remote process exited or there was a network error",
            r"NCCL communicator was aborted",
            # TensorFlow
            r"stopped sending heartbeats",
            r"heartbeat timeout",
            r"Socket closed",
            r"UnavailableError",
            r"AbortedError.*(ollective|peer)",
            # MPI
            r"MPI_ERR_PROC_FAILED",
        )
    )
)


def first_failure(failed: Iterable[E]) -> E:
    """Return the rank that failed first, and not because of another one.

    A rank whose peer is gone often ends before that peer's interpreter does, so its error counts
    before its time. If all errors are of that kind, the earliest counts.

    Args:
        failed: the ranks that have failed by themselves; at least one.
    """
    return min(failed, key=lambda rank: (is_victim(rank.said), rank.failed_at))


def is_victim(said: str) -> bool:
    """Return whether the error of a rank says that another one is gone."""
    return _VICTIM.search(said) is not None
