"""A training that is killed resumes at the exact successor, whatever reads its data."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.data import written
from tests.data.killing import kill
from vinedresser.data import Dataset

# 20 batches of 3.
COUNTS = [30, 8, 22]
BATCHES = 20
ORDER = {"batch_size": 3, "seed": 5, "lanes": 2, "chunk_bytes": 400, "window_bytes": 2000}
EPOCHS = 6

# Notes each batch, and then the position, in one line.
TRAINER = """
import json, sys
from vinedresser.data import Dataset

def decode(value):
    return value.hex()

def batches_of(consumer, data):
    if consumer == "tensorflow":
        from vinedresser.data import tf_dataset
        for strings in tf_dataset(data):
            yield [value.hex() for value in strings.numpy().tolist()]
    else:
        for batch in data:
            yield batch.values

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    consumer, workers = told["consumer"], told["workers"]
    data = Dataset(told["folder"], rank=told["rank"], ranks=told["ranks"], **told["order"],
                   decode=None if consumer == "tensorflow" else decode)
    source = data
    if consumer == "torch":
        from vinedresser.data import TorchLoader
        source = TorchLoader(data, num_workers=workers, collate=list)
    if told["position"]:
        source.load_state_dict(told["position"])
    print("ready", flush=True)
    with open(told["log"], "a") as file:
        while data.epoch < told["epochs"]:
            for values in batches_of(consumer, source):
                entry = {"values": values, "position": source.state_dict()}
                file.write(json.dumps(entry) + "\\n")
                file.flush()
                # A few of them fill the pipe: the training is never far ahead of its reader.
                print("x" * 16000, flush=True)
"""


class Start(NamedTuple):
    """How the training is started: what reads its data, with how many workers and ranks."""

    consumer: str = "plain"
    workers: int = 0
    ranks: int = 1


class Training:
    """A training of several ranks that is killed and started again.

    Args:
        folder: folder of its files, with the data in ``data``.

    Attributes:
        batches: the values of each batch so far, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.batches: list[list[str]] = []
        self._folder = folder
        self._position: dict[str, Any] | None = None
        self._script = folder / "trainer.py"
        self._script.write_text(TRAINER, encoding="utf-8")

    def run(self, start: Start, *, lines: int | None) -> None:
        """Train from the last position of all ranks on.

        Args:
            start: how.
            lines: a rank is killed when it has printed so many lines, and the others with it; None:
                they run to the end.
        """
        logs = [self._folder / f"{rank}.log" for rank in range(start.ranks)]
        with ExitStack() as stack:
            ranks = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, str(self._script), self._told(start, rank, log)],
                        stdout=subprocess.PIPE,
                        start_new_session=True,
                    )
                )
                for rank, log in enumerate(logs)
            ]
            for rank in ranks if lines is None else ranks[:1]:
                assert rank.stdout is not None
                for _ in range(lines or sys.maxsize):
                    if not rank.stdout.readline():
                        break
            if lines is not None:
                for rank in ranks:
                    kill(rank)
        ended = 0 if lines is None else -signal.SIGKILL
        assert {rank.returncode for rank in ranks} == {ended}
        self._gather(logs)

    def _told(self, start: Start, rank: int, log: Path) -> str:
        log.write_text("", encoding="utf-8")
        told = {
            **start._asdict(),
            "rank": rank,
            "log": str(log),
            "folder": str(self._folder / "data"),
            "order": ORDER,
            "epochs": EPOCHS,
            "position": self._position,
        }
        return json.dumps(told)

    def _gather(self, logs: Sequence[Path]) -> None:
        """Take the batches up to the last checkpoint that all ranks have."""
        # The last line may be cut off by the kill.
        texts = [log.read_text(encoding="utf-8").splitlines(keepends=True) for log in logs]
        found = [[json.loads(line) for line in some if line.endswith("\n")] for some in texts]
        for entries in zip(*found, strict=False):
            self.batches += [entry["values"] for entry in entries]
            positions = [entry["position"] for entry in entries]
            assert all(position == positions[0] for position in positions)
            self._position = positions[0]
            done = BATCHES * positions[0]["epoch"] + positions[0]["batch"]
            if len(self.batches) > done:
                # Two ranks had one batch left of the epoch, and the other repeated the first one.
                assert self.batches.pop() == self.batches[done - BATCHES]
            assert len(self.batches) == done


def check_kills(folder: Path, starts: Sequence[Start], seed: int) -> None:
    """Kill a training once for each start, and run it to its end."""
    written.write_files(folder / "data", COUNTS)
    chance = random.Random(seed)
    training = Training(folder)
    for start in starts:
        training.run(start, lines=2 + chance.randrange(5))
    assert 0 < len(training.batches) < EPOCHS * BATCHES
    training.run(Start(), lines=None)
    undisturbed = Dataset(folder / "data", **ORDER)  # type: ignore[arg-type]
    expected = [batch.values for _ in range(EPOCHS) for batch in undisturbed]
    assert training.batches == [[value.hex() for value in values] for values in expected]


PLAIN, PAIR = Start(), Start(ranks=2)
LOADER, LOADERS = Start("torch", workers=2), Start("torch", workers=1, ranks=2)
TENSORFLOW = Start("tensorflow")


@pytest.mark.thorough
def test_no_record_is_lost_or_repeated_by_a_kill(tmp_path: Path) -> None:
    check_kills(tmp_path, [PLAIN, PAIR, LOADER, PAIR, TENSORFLOW, PLAIN], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_no_record_is_lost_or_repeated_by_many_kills(tmp_path: Path, seed: int) -> None:
    starts = [PAIR, LOADERS, TENSORFLOW, LOADER, PLAIN, Start("tensorflow", ranks=2), LOADERS]
    starts += [Start("torch", workers=3), Start("torch"), PAIR]
    random.Random(seed).shuffle(starts)
    check_kills(tmp_path, starts, seed)
