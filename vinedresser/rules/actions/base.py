"""What an action is, and what it is taken for."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from vinedresser.store.finding import Finding
from vinedresser.store.storage import Storage

__all__ = ["Action", "ActionContext", "ActionResult"]


class ActionResult(NamedTuple):
    """What came of an action.

    Attributes:
        word: "done"; "refused", which another try would not change; or "failed".
        detail: one sentence.
    """

    word: Literal["done", "refused", "failed"]
    detail: str


@dataclass(frozen=True)
class ActionContext:
    """A finding that an action is taken for.

    Attributes:
        id: the same whenever this action is taken for this finding of this run.
        finding: what was found.
        storage: the run's.
        document: what a program or a server is told, as plain JSON types
            (`vinedresser.rules.actions.message.document`).
        giving_up: set when nothing more is to be tried.
    """

    id: str
    finding: Finding
    storage: Storage
    document: dict[str, Any]
    giving_up: threading.Event


class Action(Protocol):
    """Something that is done because of a finding.

    Attributes:
        name: as in a configuration file.
    """

    name: ClassVar[str]

    def take(self, context: ActionContext) -> ActionResult:
        """Do it; called on a thread of its own, and over within a bounded time.

        Raises:
            VinedresserError: it failed.
        """
