"""A training that is killed resumes at the exact successor."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data import written
from vinedresser.data import Dataset

# Two epochs; notes each batch, and then the position, in one line.
TRAINER = """
import json, sys
from pathlib import Path
from vinedresser.data import Dataset, TorchLoader

def decode(value):
    return value.hex()

if __name__ == "__main__":
    folder, log, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    data = Dataset(folder, batch_size=3, seed=5, lanes=2, chunk_bytes=400, window_bytes=2000,
                   decode=decode)
    source = TorchLoader(data, num_workers=workers, collate=list) if workers else data
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    # The last line may be cut off by the kill.
    lines = [line for line in lines if line.endswith("\\n")]
    log.write_text("".join(lines))
    if lines:
        source.load_state_dict(json.loads(lines[-1])["position"])
    print("ready", flush=True)
    with log.open("a") as file:
        while data.epoch < 2:
            for batch in source:
                entry = {"values": batch.values, "position": source.state_dict()}
                file.write(json.dumps(entry) + "\\n")
                file.flush()
                print(batch.number, flush=True)
"""


def killed_until_done(
    folder: Path, log: Path, workers: list[int], seed: int, trainer: str = TRAINER
) -> None:
    """Run the trainer with numbers of workers in turn and kill each; then run it to its end."""
    chance = random.Random(seed)
    script = log.with_suffix(".py")
    script.write_text(trainer, encoding="utf-8")
    for number in workers:
        command = [sys.executable, str(script), str(folder), str(log), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as training:
            assert training.stdout is not None
            for _ in range(1 + chance.randrange(9)):
                training.stdout.readline()
            training.send_signal(signal.SIGKILL)
    subprocess.run([*command[:-1], "0"], check=True, stdout=subprocess.DEVNULL, timeout=120)


def check_kills(tmp_path: Path, workers: list[int], seed: int) -> None:
    written.write_files(tmp_path / "data", [30, 8, 21])
    log = tmp_path / "log"
    killed_until_done(tmp_path / "data", log, workers, seed)
    lines = log.read_text(encoding="utf-8").splitlines()
    found = [value for line in lines for value in json.loads(line)["values"]]
    undisturbed = Dataset(
        tmp_path / "data", batch_size=3, seed=5, lanes=2, chunk_bytes=400, window_bytes=2000
    )
    expected = [value.hex() for _ in range(2) for value in written.values(undisturbed)]
    assert found == expected


@pytest.mark.thorough
def test_no_record_is_lost_or_repeated_by_a_kill(tmp_path: Path) -> None:
    check_kills(tmp_path, [0, 2, 0], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_no_record_is_lost_or_repeated_by_many_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, [0, 1, 0, 2, 3, 0, 0, 2, 0, 0], seed=seed)
