"""The last output of the ranks of a run that failed, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.masking import masked_text
from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.plain_text import visible
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import ExitRecord, LaunchRecord, rank_log_key

__all__ = ["RankOutput", "rank_outputs"]

_MOST_LINES = 25
_MOST_BYTES = 16 * 1024
# Side by side they are compared, which nobody does with more.
_MOST_RANKS = 8


@dataclass(frozen=True)
class RankOutput:
    """The last output of a rank.

    Attributes:
        rank: the rank.
        first: whether it is the one that failed first.
        lines: its last lines, without what looks like a secret.
    """

    rank: int
    first: bool
    lines: Sequence[str]


def rank_outputs(storage: Storage, faults: list[str]) -> list[RankOutput]:
    """Return the last output of the ranks if one of them failed: that one, then the others.

    Args:
        faults: gets a sentence for each record that cannot be read.

    Raises:
        StoreError: the storage refused.
    """
    end = read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    launch = read_record_or_none(storage, LaunchRecord, LaunchRecord.KEY, faults)
    if end is None or launch is None or end.rank is None:
        return []
    others = (rank for rank in range(launch.ranks) if rank != end.rank)
    shown = [end.rank, *others][:_MOST_RANKS]
    return [RankOutput(rank, rank == end.rank, _last_lines(storage, rank)) for rank in shown]


def _last_lines(storage: Storage, rank: int) -> list[str]:
    content = get_or_none(storage, rank_log_key(rank)) or b""
    text = content[-_MOST_BYTES:].decode("utf-8", errors="replace")
    return [visible(masked_text(line)) for line in text.splitlines()[-_MOST_LINES:]]
