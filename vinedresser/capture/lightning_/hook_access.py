"""What the Lightning callback uses of a hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.recording.session import Session

__all__ = ["HookAccess"]


class HookAccess(NamedTuple):
    """The parts of a hook that the callback uses.

    Attributes:
        session: session of the hook.
        closed: return whether the hook is closed.
        begin: prepare for a training.
        introduce: add a watched model, given its adapter and the number of ranks.
        note: note the error with which the training ends, or None.
        metric: see `Hook.metric`.
    """

    session: Session
    closed: Callable[[], bool]
    begin: Callable[[], None]
    introduce: Callable[[Adapter, int], None]
    note: Callable[[BaseException | None], None]
    metric: Callable[[str, Any], None]
