"""Names and events that queries to a run may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vinedresser.queries.live.client import agent_status
from vinedresser.queries.observables import STANDARD
from vinedresser.queries.ranks import check_rank
from vinedresser.queries.stored.answering import stored_names
from vinedresser.store.reading.reader import Run

__all__ = ["Asking", "names_to_ask"]


@dataclass(frozen=True)
class Asking:
    """What can be asked of a run.

    Attributes:
        events: what closes windows, besides steps, seconds and flush.
        names: the names, each with its type and shape, or with what was stored of it; "": unknown.
        live: a running training answers.
    """

    events: tuple[str, ...]
    names: Mapping[str, str]
    live: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"live": self.live, "events": [*self.events], "names": dict(self.names)}


def names_to_ask(run: Run, *, rank: int = 0, live: bool) -> Asking:
    """Return what can be asked.

    Args:
        rank: the rank of the training to ask; of a stored run, the names of all ranks are listed.
        live: ask the running training.

    Raises:
        ConfigError: the run does not have this rank.
        AgentAway: no agent of this user listens.
        CorruptData: the response of the agent is damaged.
        StoreError: the storage refused.
    """
    check_rank(run, rank)
    if live:
        status = agent_status(run.path, rank=rank)
        standard = {name: about for name, about in STANDARD.items() if name != "loss_per_sample"}
        events = tuple(name for name in status["events"] if name != "step")
        return Asking(tuple(dict.fromkeys(("epoch", *events))), standard | status["names"], True)
    names = {name: _stored(run, name) for name in stored_names(run)}
    events = ("epoch",) if "epoch" in names else ()
    return Asking((*events, "evaluation"), names, False)


def _stored(run: Run, name: str) -> str:
    if name in STANDARD:
        return STANDARD[name]
    if name in run.scalar_names():
        return "number"
    view = run.tensor(name)
    kept = ["tensor"] if any(len(view.steps(None, rank)) for rank in run.ranks) else []
    return ", ".join([*kept, *sorted(view.reductions)])
