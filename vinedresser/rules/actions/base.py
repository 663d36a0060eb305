"""The interface of an action, its context and its result, and retrying it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from vinedresser.objects import Storage
from vinedresser.objects.retrying import attempts, backoff
from vinedresser.store.finding import Finding

__all__ = ["Action", "ActionContext", "ActionResult", "retry"]

# Seconds before the second try; each later pause is twice as long, up to the longest.
_FIRST, _LONGEST = 0.5, 30.0


class ActionResult(NamedTuple):
    """The result of an action.

    Attributes:
        word: "done"; "refused": another attempt would have the same result; or "failed".
        detail: one sentence.
    """

    word: Literal["done", "refused", "failed"]
    detail: str


@dataclass(frozen=True)
class ActionContext:
    """The finding that an action is taken for, and its run.

    Attributes:
        id: identifier of this action for this finding of this run; see `message.action_id`.
        document: content for programs and servers, as plain JSON types; see `message.document`.
        giving_up: set when no more attempts should be made.
        upto: step of the last finding that a message is about; None: that of the finding.
    """

    id: str
    finding: Finding
    storage: Storage
    document: dict[str, Any]
    giving_up: threading.Event
    upto: int | None = None


class Action(Protocol):
    """A reaction to a finding.

    Attributes:
        name: name in a configuration file.
    """

    name: ClassVar[str]

    def take(self, context: ActionContext) -> ActionResult:
        """Take the action, within a bounded time; called in a separate thread.

        Raises:
            VinedresserError: the action failed.
        """


def retry(
    attempt: Callable[[], ActionResult], patience: float, giving_up: threading.Event
) -> ActionResult:
    """Attempt an action until it is done or refused; return the last result.

    Args:
        attempt: one attempt, of bounded duration.
        patience: seconds after which no attempt begins.
        giving_up: ends a pause and all attempts.
    """
    result, tries = ActionResult("failed", ""), 0
    for number in attempts(backoff(_FIRST, _LONGEST), timeout=patience, stop=giving_up):
        result = attempt()
        if result.word != "failed":
            return result
        tries = number
    return ActionResult("failed", f"{result.detail} (tried {tries} times)")
