"""The record of which rules judge a run, and what it lacks for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from vinedresser.store.records.record import Record


@dataclass(frozen=True)
class ChecksRecord(Record):
    """Which rules of a group judge a run, and what it lacks for them.

    Attributes:
        rules: names of the rules.
        lacking: what a run that was not cut short lacks, by the name of each rule that has nothing
            to look at without it, such as ``{"overfitting": ["evaluations"]}``.
        advice: how to provide it; "" if nothing is lacking.
        ended: whether the rules have seen the run to its end.
    """

    KEY: ClassVar[str] = "checks"

    rules: list[str]
    lacking: dict[str, list[str]] = field(default_factory=dict)
    advice: str = ""
    ended: bool = False

    @property
    def lacks(self) -> str:
        """What the run lacks in a few words, such as "no evaluations (8 rules)"; "" if nothing."""
        counts = Counter(lack for lacks in self.lacking.values() for lack in lacks)
        return ", ".join(
            f"no {lack} ({count} rule{'' if count == 1 else 's'})"
            for lack, count in counts.most_common()
        )
