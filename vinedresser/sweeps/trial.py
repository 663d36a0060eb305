"""A trial of a sweep: its configuration, what it reported, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vinedresser.sweeps.dimension import Choice

__all__ = ["TrialEnd", "Proposal", "Trial", "TrialState", "trial_name"]

# "stopped": by a rule or a person, for what it does itself; "pruned": by comparison with others.
TrialState = Literal["running", "finished", "pruned", "stopped", "failed"]


@dataclass(frozen=True)
class Proposal:
    """A configuration that is to be tried.

    Attributes:
        number: of the trial, from 0.
        parameters: by name; those whose condition is not met are not there.
        seed: that the trial is to be given, None when it gets none.
    """

    number: int
    parameters: Mapping[str, Choice]
    seed: int | None = None


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended.

    Attributes:
        state: how.
        reason: why, as one sentence; "" for one that finished.
        rule: that stopped it.
        fault: what that rule found; see `rules.faults`.
        remedy: the change that it proposes.
    """

    state: TrialState
    reason: str = ""
    rule: str = ""
    fault: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Trial:
    """What is known of a trial.

    Attributes:
        number: from 0.
        parameters: by name.
        values: of the first objective by epoch, from 1.
        result: of each objective, once it has finished; empty before, and where there is none.
        ending: how it ended; of state "running" while it does not.
    """

    number: int
    parameters: Mapping[str, Choice]
    values: Mapping[int, float] = field(default_factory=dict)
    result: tuple[float, ...] = ()
    ending: TrialEnd = field(default_factory=lambda: TrialEnd("running"))

    @property
    def name(self) -> str:
        """Such as ``trial-0007``; its first run is called so too."""
        return trial_name(self.number)

    @property
    def configuration(self) -> str:
        """Its parameters in a few words, numbers to three digits."""
        return ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.parameters.items()
        )

    @property
    def epochs(self) -> int:
        """The epochs that it has taken."""
        return max(self.values, default=0)


def trial_name(number: int) -> str:
    """Return what a trial is called."""
    return f"trial-{number:04d}"
