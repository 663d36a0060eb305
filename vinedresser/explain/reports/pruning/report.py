"""The report of a pruning: one self-contained page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vinedresser.explain.charts.axes import Size
from vinedresser.explain.reports.pruning.charts import channels_left, trade_off
from vinedresser.explain.reports.templating import write_page
from vinedresser.pruning.folders import ResultRecord
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.settings import PruneTable, Target
from vinedresser.store.finding import Finding

__all__ = ["PruningPage", "write_pruning_report"]

_SIZE = Size(460.0, 220.0)
_COSTS: dict[Target, str] = {
    "parameters": "Parameters",
    "macs": "MACs",
    "latency": "Latency",
    "size": "Bytes",
}


@dataclass(frozen=True)
class PruningPage:
    """Contents of the page.

    Attributes:
        name: name of the pruning.
        table: settings of the pruning.
        rounds: records of the complete rounds, from round 0.
        chosen: the round that is the result, and why; None if there is none.
        over: why the pruning ended.
        findings: findings of the rules by name of the run.
        missed: the targets that the result does not reach, and why; "" for none.
    """

    name: str
    table: PruneTable
    rounds: Sequence[RoundRecord]
    chosen: ResultRecord | None
    over: str
    findings: Mapping[str, Sequence[Finding]]
    missed: str = ""

    @property
    def result(self) -> RoundRecord | None:
        """Record of the round that is the result."""
        return self.rounds[self.chosen.round] if self.chosen is not None else None

    @property
    def is_reached(self) -> bool:
        """Whether the result is a pruned model that reaches all targets."""
        return self.chosen is not None and self.chosen.round > 0 and not self.missed

    @property
    def checks(self) -> list[str]:
        """Names of the checks of the pruned models."""
        return list(dict.fromkeys(name for one in self.rounds for name in one.checks))

    def share(self, one: RoundRecord, cost: Target) -> float:
        """Return a cost of a round as a share of the unpruned model's."""
        return one.costs[cost] / self.rounds[0].costs[cost]

    @property
    def notes(self) -> list[str]:
        """What of the models was not seen, each once."""
        return list(dict.fromkeys(note for one in self.rounds for note in one.notes))


def write_pruning_report(page: PruningPage, destination: str | os.PathLike[str]) -> Path:
    """Write the page: one self-contained HTML file with a light and a dark theme.

    Args:
        page: contents of the page.
        destination: file to write; replaced atomically.

    Returns:
        Path of the file.

    Raises:
        StoreError: the file cannot be written.
    """
    number = page.chosen.round if page.chosen is not None else None
    charts = {
        name: trade_off(_told(page.rounds, cost), cost, number, _SIZE)
        for cost, name in _COSTS.items()
        if page.rounds
    }
    channels = channels_left(page.rounds) if page.rounds else None
    return write_page(destination, "pruning.html.j2", page=page, charts=charts, channels=channels)


def _told(rounds: Sequence[RoundRecord], cost: Target) -> list[RoundRecord]:
    """Return the rounds of which a cost is known."""
    return [one for one in rounds if cost != "latency" or one.share_of_latency.is_clear]
