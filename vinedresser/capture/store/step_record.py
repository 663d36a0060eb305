"""What a hook hands to the writer when a step has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["MODES", "HostTensor", "Mode", "StepRecord"]

Mode = Literal["train", "eval", "predict"]
MODES: tuple[Mode, ...] = ("train", "eval", "predict")


class HostTensor(NamedTuple):
    """A tensor in host memory that nobody will change any more.

    Attributes:
        dtype: its type in safetensors' spelling, such as "F32", "BF16", "I64", "BOOL".
        shape: its shape.
        data: its elements, C-contiguous; of any numpy type of the same item size, since numpy has
            no bfloat16 or float8 of its own.
    """

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.generic]


@dataclass
class StepRecord:
    """Everything captured in one step of one mode on one rank.

    Attributes:
        mode: "train", "eval" or "predict".
        step: of a train step, its number from 0; of an evaluation or prediction, the number of
            optimizer steps done before it, so that all modes share one axis.
        time: when the step ended, seconds since the epoch.
        tensors: full tensors by name.
        scalars: scalars by name (losses, metrics).
        reductions: for a tensor's name, its statistics by the reduction's name.
    """

    mode: Mode
    step: int
    time: float
    tensors: dict[str, HostTensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    reductions: dict[str, dict[str, float]] = field(default_factory=dict)

    def nbytes(self) -> int:
        """Return the bytes of its tensors, in host memory."""
        return sum(tensor.data.nbytes for tensor in self.tensors.values())
