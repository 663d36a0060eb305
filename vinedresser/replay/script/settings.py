"""What the process of a script is told about its replay, and what it answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import torch

from vinedresser.replay.results import Comparison, Located, Outcome
from vinedresser.replay.what_if.functions_seen import Network
from vinedresser.replay.what_if.results import Course

__all__ = [
    "ScriptChange",
    "ScriptResult",
    "ScriptSettings",
    "TrialResult",
    "TrialSettings",
]


@dataclass(frozen=True)
class TrialSettings:
    """The steps of a trial.

    Attributes:
        steps: number of steps.
        seconds: time for them, from the first one.
        updates: whether weights are updated.
        shuffled: whether labels are shuffled.
        facts: what is known about the unchanged steps, see `Facts`; None: nothing is changed.
        change: which of the changes that apply is made, from 0.
    """

    steps: int
    seconds: float
    updates: bool = True
    shuffled: bool = False
    facts: dict[str, Any] | None = None
    change: int = 0


@dataclass(frozen=True)
class ScriptSettings:
    """What the process is told.

    Attributes:
        directory: directory of the result.
        parent: id of the process that starts it; its descendants replay nothing.
        snapshot: location of the snapshot.
        samples: number of the batch and row of the samples to run the step with; None: all.
        locate: whether the operation is looked for that makes a gradient non-finite.
        eager: whether what `torch.compile` has compiled is run as it is written.
        dtype: precision in which the step is run, such as "float64"; "": its own.
        trial: the steps of a trial, if the step is the first of one.
    """

    directory: str
    parent: int
    snapshot: str
    samples: list[tuple[int, int]] | None = None
    locate: bool = False
    eager: bool = False
    dtype: str = ""
    trial: TrialSettings | None = None

    def to_text(self) -> str:
        """Return the settings as the value of an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the settings of a text that `to_text` returned."""
        given = json.loads(text)
        if given["samples"] is not None:
            given["samples"] = [(batch, row) for batch, row in given["samples"]]
        if given["trial"] is not None:
            given["trial"] = TrialSettings(**given["trial"])
        return cls(**given)


@dataclass(frozen=True)
class ScriptChange:
    """A change that applies; see `vinedresser.replay.what_if.change.Change`."""

    kind: str
    words: str
    control: bool
    values: tuple[float, ...]
    network: bool = False
    learns: bool = False


@dataclass(frozen=True)
class TrialResult:
    """The steps of a trial, and what was seen in them.

    Attributes:
        ended: why there are no more, in words; "" if there are as many as were asked for.
        batches: digest of the inputs of each step.
        pace: share of their norm by which the weights moved in a step.
        half: name of the half precision that the step uses, or "".
        accumulates: gradients of a step are added to those of the step before.
        random: the step draws random numbers.
        alternates: there were updates of other models with gradients of their own.
        changes: the changes that apply, if facts were given.
        network: what the model computes, if it was seen.
    """

    course: Course
    ended: str = ""
    batches: list[str] = field(default_factory=list)
    pace: float = 0.0
    half: str = ""
    accumulates: bool = False
    random: bool = False
    alternates: bool = False
    changes: list[ScriptChange] = field(default_factory=list)
    network: Network | None = None


@dataclass(frozen=True)
class ScriptResult:
    """What the process answers.

    Attributes:
        failure: why the step was not run again; "" if it was.
        losses: value of the loss of each batch.
        comparison: how the step compares with the recorded one.
        nonfinite: model, path and number of non-finite entries of each affected gradient.
        finite: whether all gradients were finite after each backward pass.
        inexact: why a part of a batch computes something else than the whole, in words.
        notes: what may make the step differ from the recorded one, in words.
        located: the operation, if it was looked for and found.
        inputs: names of the inputs and parameters that are not finite before the step.
        trial: the steps of a trial, if it was asked for.
    """

    failure: str = ""
    losses: list[float] = field(default_factory=list)
    comparison: Comparison = field(default_factory=lambda: Comparison(None, 0, [], {}))
    nonfinite: list[tuple[str, str, int]] = field(default_factory=list)
    finite: list[bool] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    located: Located | None = None
    inputs: list[str] = field(default_factory=list)
    trial: TrialResult | None = None

    @property
    def outcome(self) -> Outcome:
        """What the step computed, without the digests of the gradients."""
        losses = [torch.tensor(loss, dtype=torch.float64) for loss in self.losses]
        return Outcome(losses, {}, {(model, path): one for model, path, one in self.nonfinite})

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the result of a table that `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: it is not such a table.
        """
        trial = table["trial"]
        if trial is not None:
            changes = [
                ScriptChange(**{**one, "values": tuple(one["values"])}) for one in trial["changes"]
            ]
            course = Course(**trial["course"])
            network = trial["network"] and Network.from_json(trial["network"])
            parts = {"course": course, "changes": changes, "network": network}
            trial = TrialResult(**{**trial, **parts})
        return cls(
            **{
                **table,
                "comparison": Comparison.from_json(table["comparison"]),
                "nonfinite": [(model, path, number) for model, path, number in table["nonfinite"]],
                "located": Located.from_json(table["located"]),
                "trial": trial,
            }
        )
