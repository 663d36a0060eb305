"""What closes the windows of a query."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, Self

from vinedresser.errors import ConfigError
from vinedresser.store.json_values import shown

_ENDS: tuple[Literal["epoch", "evaluation", "flush"], ...] = ("epoch", "evaluation", "flush")
_COUNTED = re.compile(r"(?:(?P<count>\d{1,9}(?:\.\d{1,6})?)\s+)?(?P<unit>step|second)s?")
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_KNOWN = '"step", "100 steps", "30 seconds", "epoch", "evaluation", "flush" or the name of an event'


@dataclass(frozen=True)
class Every:
    """What closes the windows of a query.

    Attributes:
        kind: "steps", "seconds", "epoch", "evaluation", "flush" or "event".
        amount: number of steps or seconds; 0 for the other kinds.
        event: name of the user's event; "" for the other kinds.
    """

    kind: Literal["steps", "seconds", "epoch", "evaluation", "flush", "event"]
    amount: float = 0
    event: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a text says.

        Args:
            text: "epoch", "evaluation", "flush" (the client closes windows), "step", "100 steps",
                "30 seconds", or the name of the user's event.

        Raises:
            ConfigError: it is none of these.
        """
        text = text.strip() if isinstance(text, str) else text
        for kind in _ENDS:
            if text == kind:
                return cls(kind)
        counted = _COUNTED.fullmatch(text) if isinstance(text, str) else None
        if counted:
            amount = float(counted["count"] or 1)
            steps = counted["unit"] == "step"
            if amount <= 0 or (steps and amount != math.floor(amount)):
                whole = " whole" if steps else ""
                raise ConfigError(f"every = {text!r}: must be a positive{whole} number")
            return cls("steps" if steps else "seconds", amount)
        if isinstance(text, str) and _NAME.fullmatch(text):
            return cls("event", event=text)
        raise ConfigError(f"every = {shown(text)}: must be {_KNOWN}")

    def __str__(self) -> str:
        if not self.amount:
            return self.event or self.kind
        unit = self.kind.removesuffix("s") if self.amount == 1 else self.kind
        return unit if unit == "step" else f"{self.amount:g} {unit}"

    @property
    def mode(self) -> Literal["train", "eval"]:
        """The mode whose events fill a window: "eval" for "evaluation"."""
        return "eval" if self.kind == "evaluation" else "train"
