"""A process that writes a run with known content, for tests to follow and kill.

python -m vinedresser.testing.writing LOCATION RANK STEPS PAUSE

It writes STEPS steps (0: without end) with a pause of PAUSE seconds after each, and an evaluation
after every tenth. Regularly, and at the end, it flushes and prints the last committed step to
stdout.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np

from vinedresser.objects import open_storage
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import step_record

__all__ = ["known_records", "write"]

_FLUSH_EVERY = 25


def known_records(rank: int) -> Iterator[StepRecord]:
    """Yield records without end; their contents are determined by rank and step."""
    for step in itertools.count():
        generator = np.random.default_rng((rank, step))
        weight = generator.standard_normal((16, 24), np.float32)
        yield step_record(
            step,
            tensors={
                "weights/layer.weight": weight,
                "outputs/labels": generator.integers(0, 10, 5),
            },
            scalars={"losses/loss": float(weight.mean()), "metrics/step": float(step)},
            reductions={"weights/layer.weight": {"min": weight.min(), "max": weight.max()}},
            at=1e9 + step,
        )
        if step % 10 == 9:
            yield step_record(step + 1, mode="eval", scalars={"metrics/accuracy": step / 1e3})


def write(location: str, rank: int, steps: int, pause: float) -> None:
    """Write a run, as the process does with these arguments."""
    writer = RunWriter(open_storage(location), rank, cut_bytes=64 << 10)
    for record in known_records(rank):
        if steps and record.step >= steps and record.mode == "train":
            break
        writer.add(record)
        if record.mode == "train" and record.step % _FLUSH_EVERY == 0:
            writer.flush()
            print(record.step, flush=True)  # noqa: T201 (the protocol)
        if pause:
            time.sleep(pause)
    writer.close()
    print(writer.last_step, flush=True)  # noqa: T201 (the protocol)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
