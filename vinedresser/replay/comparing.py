"""Comparing a replay with the recorded step."""

from __future__ import annotations

import torch

from vinedresser.capture.run.environment import versions
from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.environment import environment, present_device
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.results import Comparison
from vinedresser.replay.running import Outcome
from vinedresser.snapshots.record import SnapshotRecord

__all__ = ["adopt_environment", "compare"]


def adopt_environment(record: SnapshotRecord) -> None:
    """Set number of threads, determinism and precision as they were recorded."""
    found = record.environment
    threads = found.get("threads")
    if type(threads) is int and 0 < threads <= 1024:
        torch.set_num_threads(threads)
    if found.get("deterministic algorithms") is True:
        torch.use_deterministic_algorithms(True)
    precision = found.get("float32 matmul precision")
    if precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)


def compare(record: SnapshotRecord, step: RecordedStep, outcome: Outcome) -> Comparison:
    """Compare the outcome of a replay with what was recorded.

    Args:
        record: record of the snapshot.
        step: its step.
        outcome: outcome of the step, run with the whole batch.
    """
    recorded = {
        (name, path): str(one.get("sha256"))
        for name, model in step.models.items()
        for path, one in model.gradients.items()
    }
    different = [
        f"{name}.{path}".lstrip(".")
        for name, path in recorded.keys() | outcome.gradients.keys()
        if recorded.get((name, path)) != outcome.gradients.get((name, path))
    ]
    return Comparison(
        _same_losses(step, outcome), len(recorded), sorted(different), _differing(record)
    )


def _same_losses(step: RecordedStep, outcome: Outcome) -> bool | None:
    """Compare each loss with the recorded ones of the same call: a step may return any of them."""
    known = [[digest(one) for one in values if one.numel() == 1] for values in step.losses]
    if len(outcome.losses) != len(known) or not all(known):
        return None
    return all(digest(one) in values for one, values in zip(outcome.losses, known, strict=True))


def _differing(record: SnapshotRecord) -> dict[str, tuple[str, str]]:
    try:
        device = present_device(record.environment.get("device", "cpu"))
    except ValueError as error:
        raise ConfigError(f"the snapshot cannot be compared: {error}") from error
    here = environment(device)
    now = {**versions(torch=torch.__version__), **{key: str(one) for key, one in here.items()}}
    then = {**record.versions, **{key: str(one) for key, one in record.environment.items()}}
    return {
        name: (then[name], now[name])
        for name in then
        if name in now and then[name] != now[name] and name != "vinedresser"
    }
