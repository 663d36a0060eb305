"""Jobs of several ranks beside torchrun: `python -m benchmarks.ranks`.

- start: from the call of the launcher until all ranks have met in a barrier, interleaved with
  `torchrun --standalone`, and with the launchers "torchrun" and, where there is mpirun, "mpi";
- failure: from the moment before a rank fails, in one of several ways in turn, until all processes
  are gone and the end is recorded;
- restart: from the moment before a rank fails until all ranks have met again, by
  `vinedresser train` with `restarts`, beside `torchrun --max-restarts`;
- hang: from the moment before a rank hangs until the finding names it, beside the seconds without a
  step that the rule waits for.

`python -m benchmarks.rank_checks` has the cost of fingerprints and of a hook under DDP,
`python -m benchmarks.scale` the simulation of many ranks.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.measure import interleave, table
from vinedresser.infra.supervise.launcher import prepare_run, start, wait_for_exit
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ExitRecord, LaunchRecord, StopRecord, new_run
from vinedresser.tasks.lifecycle.run_script import Script, prepare_script, run_script

# Joins, trains unless it is only to start, and writes down when all had met, or when rank 1 is
# about to fail.
PROGRAM = """
import os, pathlib, signal, sys, time
import torch
import torch.distributed as dist
from torch import nn

folder, what = pathlib.Path(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
if what == "starts again" and not (folder / "failing").exists():
    dist.barrier()
    if rank == 1:
        (folder / "failing").write_text(str(time.time()))
        os._exit(42)
    time.sleep(600)
if what in ("start", "starts again"):
    (folder / f"met-{rank}").write_text(str(time.time()))
    dist.barrier()
    dist.destroy_process_group()
    sys.exit()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10**9):
    if step == 10 and rank == 1:
        (folder / "failing").write_text(str(time.time()))
        if what == "exits":
            sys.exit(42)
        if what == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raises":
            raise ValueError("no such label")
        if what == "leaves a deaf peer":
            os._exit(3)
        time.sleep(600)
    if step == 10 and what == "leaves a deaf peer":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
"""
FAILURES = ("exits", "is killed", "raises", "leaves a deaf peer")
_NUMBERS = itertools.count()
# Seconds without a step.
SILENCE = 2.0


def launch(folder: Path, program: Path, what: str, ranks: int, launcher: str = "local") -> Path:
    """Run a job to its end; return its directory."""
    directory = folder / str(next(_NUMBERS))
    argv = [sys.executable, str(program), str(directory), what]
    prepare_run(
        directory, new_run("run"), LaunchRecord(argv, str(folder), ranks=ranks, launcher=launcher)
    )
    start(directory).wait()
    assert wait_for_exit(directory, 60) is not None
    return directory


def start_by_us(folder: Path, program: Path, ranks: int, launcher: str = "local") -> float:
    """Return the seconds until all ranks had met."""
    began = time.time()
    return _met(launch(folder, program, "start", ranks, launcher), ranks) - began


def start_by_torchrun(folder: Path, program: Path, ranks: int) -> float:
    """Return the seconds until all ranks had met."""
    directory = folder / str(next(_NUMBERS))
    began = time.time()
    _torchrun(directory, program, "start", f"--nproc-per-node={ranks}")
    return _met(directory, ranks) - began


def _torchrun(directory: Path, program: Path, what: str, *options: str) -> None:
    directory.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", *options]
    # Else its restarts fail: the ranks meet in a store that the first attempt has closed.
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [*torchrun, str(program), str(directory), what]
    subprocess.run(command, check=True, capture_output=True, env=environment)


def restart_by_us(folder: Path, program: Path) -> float:
    """Return the seconds from the failure of a rank until all had met again."""
    directory = folder / str(next(_NUMBERS))
    directory.mkdir()
    experiment = directory / "experiment.toml"
    command = [sys.executable, str(program), str(directory), "starts again"]
    experiment.write_text(
        f'[run]\nname = "again"\ncommand = {command}\nranks = 2\n'
        '[remedy]\ntimes = 0\nrestarts = 1\n[rules]\npreset = "none"\n',
        encoding="utf-8",
    )
    vinedresser = [sys.executable, "-m", "vinedresser", "train", str(experiment)]
    subprocess.run(vinedresser, cwd=directory, check=True, capture_output=True)
    return _restarted(directory)


def restart_by_torchrun(folder: Path, program: Path) -> float:
    """Return the seconds from the failure of a rank until all had met again."""
    directory = folder / str(next(_NUMBERS))
    _torchrun(directory, program, "starts again", "--nproc-per-node=2", "--max-restarts=1")
    return _restarted(directory)


def _restarted(directory: Path) -> float:
    return _met(directory, 2) - float((directory / "failing").read_text())


def _met(directory: Path, ranks: int) -> float:
    return max(float((directory / f"met-{rank}").read_text()) for rank in range(ranks))


def failure(folder: Path, program: Path, what: str) -> float:
    """Return the seconds from the failure of a rank to the end of all processes."""
    directory = launch(folder, program, what, 2)
    return _written(directory / ExitRecord.KEY) - float((directory / "failing").read_text())


def hang(folder: Path, program: Path) -> float:
    """Return the seconds from the hang of a rank to the finding that names it."""
    directory = folder / str(next(_NUMBERS))
    settings = {"seconds": SILENCE, "times": 1.0, "severity": "stop"}
    command = [str(program), str(directory), "hangs"]
    script = Script(command, {"stalled_training": settings}, forward=False, ranks=2)
    run_script(prepare_script(directory, script))
    [found] = open_run(directory).findings()
    assert found.evidence["missing"] == [1], found.seen
    return _written(directory / StopRecord.KEY) - float((directory / "failing").read_text())


def _written(path: Path) -> float:
    return path.stat().st_mtime_ns / 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="of each start")
    parser.add_argument("--restarts", type=int, default=3, help="rounds of restarts")
    parser.add_argument("--failures", type=int, default=20)
    parser.add_argument("--hangs", type=int, default=4)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        program = Path(name, "train.py")
        program.write_text(PROGRAM, encoding="utf-8")
        rows = [
            *starts(program, options.rounds),
            *restarts(program, options.restarts),
            *failures(program, options.failures),
            *hangs(program, options.hangs),
        ]
    print(table(rows, ("seconds", "p50", "p95", "budget")))


def starts(program: Path, rounds: int) -> Iterator[Sequence[str]]:
    """Yield rows about the start of jobs, beside torchrun's."""
    for ranks in (2, 4) if rounds else ():
        arms = {
            "ours": partial(start_by_us, program.parent, program, ranks),
            "torchrun": partial(start_by_torchrun, program.parent, program, ranks),
        }
        launchers = [one for one in ("torchrun", "mpi") if one != "mpi" or shutil.which("mpirun")]
        for one in launchers if ranks == 2 else ():
            arms[f'launcher "{one}"'] = partial(
                start_by_us, program.parent, program, ranks, launcher=one
            )
        found = interleave(arms, rounds)
        ratio = median(found["ours"]) / median(found["torchrun"])
        name = f"start of {ranks} ranks: {ratio:.2f} x torchrun's"
        yield [name, *_quantiles(found["ours"]), "1.1 x"]
        for arm in [*arms][1:]:
            yield [f"  by {arm}", *_quantiles(found[arm]), ""]


def restarts(program: Path, rounds: int) -> Iterator[Sequence[str]]:
    """Yield rows about jobs that begin again, beside torchrun's."""
    if not rounds:
        return
    ways = {"ours": restart_by_us, "torchrun": restart_by_torchrun}
    arms = {name: partial(way, program.parent, program) for name, way in ways.items()}
    found = interleave(arms, rounds)
    ratio = median(found["ours"]) / median(found["torchrun"])
    yield [f"restart of 2 ranks: {ratio:.2f} x torchrun's", *_quantiles(found["ours"]), ""]
    yield ["  by torchrun", *_quantiles(found["torchrun"]), ""]


def failures(program: Path, count: int) -> Iterator[Sequence[str]]:
    """Yield rows about the end of jobs in which a rank fails, in one of the ways in turn."""
    if not count:
        return
    took: dict[str, list[float]] = {what: [] for what in FAILURES}
    for what in itertools.islice(itertools.cycle(FAILURES), count):
        took[what].append(failure(program.parent, program, what))
    for what, seconds in took.items():
        yield [f"end after rank 1 {what}", *_quantiles(seconds), ""]
    yield ["end after any of them", *_quantiles([*itertools.chain(*took.values())]), "5 (p95)"]


def hangs(program: Path, count: int) -> Iterator[Sequence[str]]:
    """Yield a row about the findings of jobs in which a rank hangs."""
    if count:
        seconds = [hang(program.parent, program) for _ in range(count)]
        yield [f"finding after a hang, {SILENCE:g} s of it silence", *_quantiles(seconds), ""]


def _quantiles(values: Sequence[float]) -> list[str]:
    return [f"{one:.2f}" for one in np.percentile(values, (50, 95))]


if __name__ == "__main__":
    main()
