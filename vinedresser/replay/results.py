"""Results of replays, whatever the framework."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.records import Origin
from vinedresser.replay.bisecting import Smallest

__all__ = [
    "MOST_SAMPLES",
    "Bisection",
    "Comparison",
    "Located",
    "Outcome",
    "Place",
    "SampleTensor",
]

MOST_SAMPLES = 5
"""Samples that are named."""


@dataclass(frozen=True)
class Outcome:
    """What a step computed.

    Attributes:
        losses: value of the loss of each batch, as a tensor or an array of the framework; those of
            a step without a return value are missing.
        gradients: SHA-256 of each gradient by model and path.
        nonfinite: number of non-finite entries of each affected gradient, by model and path.
    """

    losses: list[Any]
    gradients: dict[tuple[str, str], str]
    nonfinite: dict[tuple[str, str], int]

    @property
    def broken(self) -> bool:
        """Whether a gradient is not finite."""
        return bool(self.nonfinite)


@dataclass(frozen=True)
class Comparison:
    """How a replay compares with the recorded step.

    Attributes:
        losses: whether all losses are equal bit for bit; None if none can be compared.
        gradients: number of recorded gradients.
        different: paths of the gradients that differ, or that only one of them has.
        environment: name, recorded and present value of what differs in the environment.
        objective: whether gradient and Hessian of an objective are compared, which has no loss.
    """

    losses: bool | None
    gradients: int
    different: list[str]
    environment: dict[str, tuple[str, str]]
    objective: bool = False

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the comparison of a table of its attributes, as JSON has kept it.

        Raises:
            KeyError, TypeError, ValueError: it is not such a table.
        """
        environment = {name: (then, now) for name, (then, now) in table["environment"].items()}
        return cls(**{**table, "environment": environment})

    @property
    def exact(self) -> bool:
        """Whether everything that can be compared is equal bit for bit."""
        return self.losses is not False and not self.different

    def told(self, loss: str) -> str:
        """Return the comparison in words.

        Args:
            loss: "loss", possibly with its value.
        """
        losses = {True: "the same", False: "different", None: "not recorded"}[self.losses]
        same = f"{self.gradients - len(self.different)} of {self.gradients} the same"
        if self.objective:
            return f"gradient and Hessian: {same}"
        return f"{loss} {losses}   gradients: {same}"


@dataclass(frozen=True)
class Bisection:
    """The samples that break a step.

    Attributes:
        found: the smallest set of them that was found.
        total: number of samples of the step.
        batches: number of batches of the step.
        inexact: why a part of a batch computes something else than the whole, in words.
        refused: message of the error with which the step failed for some of the samples, or "".
        spoiled: name of a parameter that is not finite before the step, so that no sample is to
            blame; or "".
        origins: where the samples to show come from, as far as it is known.
    """

    found: Smallest
    total: int
    batches: int
    inexact: list[str]
    refused: str
    spoiled: str = ""
    origins: list[Origin] = field(default_factory=list)

    @classmethod
    def from_json(cls, table: dict[str, Any] | None) -> Self | None:
        """Return the samples of a table of its attributes, as JSON has kept it; None for None.

        Raises:
            KeyError, TypeError, ValueError: it is not such a table.
        """
        if table is None:
            return None
        samples = [(batch, row) for batch, row in table["found"]["samples"]]
        return cls(**{**table, "found": Smallest(**{**table["found"], "samples": samples})})

    @property
    def whole(self) -> bool:
        """Whether only all samples together break the step."""
        return len(self.found.samples) == self.total > 1

    @property
    def words(self) -> str:
        """The samples in words, counted from 0 as rows of the batch are."""
        if self.spoiled:
            return f"no sample is to blame: {self.spoiled} is not finite before the step"
        runs = f"({self.found.runs} runs)"
        if self.whole:
            return f"only all {self.total} samples together break the step {runs}"
        several = self.batches > 1
        names = [f"{row} of batch {batch}" if several else str(row) for batch, row in self.samples]
        more = ", …" if len(self.found.samples) > len(names) else ""
        shown = f"{', '.join(names)}{more} of {self.total}, counted from 0,"
        where = f"; from {', '.join(map(str, self.origins))}" if self.origins else ""
        if len(self.found.samples) == 1:
            return f"sample {shown} breaks the step {runs}{where}"
        return f"samples {shown} break the step {runs}{where}"

    @property
    def samples(self) -> list[tuple[int, int]]:
        """Number of the batch and row of the samples to show."""
        return self.found.samples[:MOST_SAMPLES]


@dataclass(frozen=True)
class Place:
    """Where the program called an operation.

    Attributes:
        module: path of the module in whose forward it was, "" outside of the model.
        file: source file, "" if unknown.
        line: line number.
        text: the line.
    """

    module: str
    file: str
    line: int
    text: str

    @property
    def words(self) -> str:
        """File, line and module; "" if the file is unknown."""
        inside = f"   in {self.module}" if self.module else ""
        return f"{os.path.relpath(self.file)}:{self.line}{inside}" if self.file else ""


@dataclass(frozen=True)
class Located:
    """The first operation with a non-finite result from finite inputs.

    Attributes:
        operation: its name, such as "aten.sqrt".
        phase: "forward" or "backward".
        node: name of the node of the backward pass, such as "SqrtBackward0"; "" in the forward.
        place: where the program called it, or the operation whose derivative it computes.
        result: the first non-finite element and its index.
        inputs: values of the inputs at that index, or their range.
        number: number of the operation, from 0.
    """

    operation: str
    phase: str
    node: str
    place: Place
    result: str
    inputs: list[str]
    number: int

    @classmethod
    def from_json(cls, table: dict[str, Any] | None) -> Self | None:
        """Return the operation of a table of its attributes, as JSON has kept it; None for None.

        Raises:
            KeyError, TypeError, ValueError: it is not such a table.
        """
        return None if table is None else cls(**{**table, "place": Place(**table["place"])})

    @property
    def words(self) -> str:
        """The operation and its result in words."""
        node = f" ({self.node})" if self.node else ""
        return f"{self.operation} in the {self.phase}{node}: {self.result}"


@dataclass(frozen=True)
class SampleTensor:
    """A tensor of one sample.

    Attributes:
        name: its place in the batch.
        kind: dtype and shape, such as "float32 [1, 64]".
        digest: digest of its elements: equal tensors are shown once.
        values: its elements, without dimensions of size 1.
    """

    name: str
    kind: str
    digest: str
    values: NDArray[np.float64]
