"""Which stage of a data set of ours a training waits for, and what to change there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["PREFIX", "InputAdvice", "input_advice"]

PREFIX = "timing/data_"
"""Beginning of the names of the stages' seconds."""

_BENCH = "`vinedresser data bench SOURCE` measures settings"
_WORKERS = "TorchLoader(dataset, num_workers={})"
_STAGES = {
    "waiting": ("waiting for bytes", "the disk or the network does not deliver faster"),
    "parsing": ("parsing", "checking, decompressing and dividing the bytes into records"),
    "decoding": ("decoding", "`decode` and `collate`"),
}


class InputAdvice(NamedTuple):
    """What is known of waiting for data.

    Attributes:
        stage: the stage that costs most; "" if it is not the data set that is waited for.
        seen: what the stages cost.
        cause: the likely cause.
        remedy: what to change.
    """

    stage: str
    seen: str
    cause: str
    remedy: str


def input_advice(seconds: Mapping[str, float], wait: float, workers: int) -> InputAdvice | None:
    """Return which stage a training waits for; None if it has no data set of ours.

    Args:
        seconds: seconds per step by stage, see `vinedresser.data.Statistics.stages`.
        wait: seconds per step that the training waits.
        workers: number of workers that would keep up with the training.
    """
    work = {name: seconds.get(name, 0.0) for name in _STAGES}
    if not sum(work.values()):
        return None
    queued = seconds.get("queued")
    told = ", ".join(f"{_STAGES[name][0]} {1e3 * one:.3g} ms" for name, one in work.items())
    if queued is not None:
        told = f"{1e3 * queued:.3g} ms for a batch of the workers ({told}, of all together)"
    seen = f"of the wait, the data set takes {told}"
    if (sum(work.values()) if queued is None else queued) < wait / 2:
        return InputAdvice(
            "",
            seen,
            "the loop does other work between two steps: most of the wait is not the data set's",
            "look at what the loop does between the end of a step and the next call of the model, "
            "such as copies to the device, logging or evaluations",
        )
    stage = max(work, key=work.__getitem__)
    remedies = {
        "waiting": f"read more at a time, Dataset(connections=…) with more than now; larger "
        f"objects; or a copy on a local disk; {_BENCH}",
        "parsing": f"divide the work: {_WORKERS.format(workers)}; write large objects without "
        f"compression; {_BENCH}",
        "decoding": f"decode in several processes: {_WORKERS.format(workers)}; or decode less: "
        "store smaller samples, or decode whole batches",
    }
    name, why = _STAGES[stage]
    return InputAdvice(stage, seen, f"{name} costs most: {why}", remedies[stage])
