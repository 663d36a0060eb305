"""What was seen of one thing, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from vinedresser.errors import VinedresserError

__all__ = ["Check", "CheckState", "unless_it_fails"]

CheckState = Literal["ok", "warning", "problem", "unknown"]


@dataclass(frozen=True)
class Check:
    """What was seen of one thing.

    Attributes:
        area: what it belongs to, such as "servers".
        subject: what was looked at.
        state: "ok"; "warning": it works, but not as it should, or not for long; "problem": it does
            not work; "unknown": it could not be looked at.
        remedy: what to do; "" for nothing.
    """

    area: str
    subject: str
    state: CheckState
    seen: str
    remedy: str = ""


def unless_it_fails(
    area: str, subject: str, checks: Callable[[], Iterable[Check]]
) -> Iterator[Check]:
    """Yield checks; if something keeps them from looking, one that says what.

    Args:
        checks: returns them.
    """
    try:
        yield from checks()
    except (OSError, VinedresserError) as error:
        yield Check(area, subject, "unknown", f"could not be looked at: {error}")
