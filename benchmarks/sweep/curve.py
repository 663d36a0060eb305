"""The recorded training of one configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from vinedresser.sweeps.dimension import Choice

__all__ = ["Curve"]


@dataclass(frozen=True)
class Curve:
    """A training over all epochs.

    Attributes:
        parameters: configuration.
        accuracies: accuracy on held-out rows after each epoch.
        seconds: duration, including capture.
        stopped: epochs, possibly fractional, after which the first rule would have stopped it;
            None if no rule would have.
        rule: name of that rule.
        seen: observation of that rule.
        suspected: first rule with a suspicion at the end of each epoch; "" for none.
    """

    parameters: dict[str, Choice]
    accuracies: list[float]
    seconds: float
    stopped: float | None = None
    rule: str = ""
    seen: str = ""
    suspected: list[str] = field(default_factory=list)
