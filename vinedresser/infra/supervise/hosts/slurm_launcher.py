"""Submit a batch job of SLURM that starts the hosts of a run, and wait for its end.

python -m vinedresser.infra.supervise.hosts.slurm_launcher RUN
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

from vinedresser.errors import NotARun
from vinedresser.infra.supervise.hosts.commands import host_command
from vinedresser.objects import LocalStorage
from vinedresser.plain_text import visible
from vinedresser.store.records import LaunchRecord, read_record

__all__ = ["batch_script", "main"]

_SCRIPT = "slurm.sbatch"


def main(directory: Path) -> int:
    """Submit the job and wait for its end; on SIGTERM, cancel it. Return its exit code."""
    storage = LocalStorage(directory)
    launch = read_record(storage, LaunchRecord)
    if launch is None:
        raise NotARun(f"{directory}: has no {LaunchRecord.KEY}")
    storage.put(_SCRIPT, [batch_script(launch, directory).encode()])
    command = ["sbatch", "--wait", "--parsable", *launch.system.options, f"{directory}/{_SCRIPT}"]
    # A signal between the submission and its answer would leave a job behind.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    submission = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.pthread_sigmask(  # noqa: PLW1509
            signal.SIG_UNBLOCK, [signal.SIGTERM]
        ),
    )
    assert submission.stdout is not None, "it was asked for"
    # The number, and the cluster after a semicolon.
    job, _, cluster = submission.stdout.readline().strip().partition(";")
    if not job.isdecimal():
        submission.communicate()
        return submission.returncode or 1
    sys.stdout.write(visible(f"job {job}") + "\n")
    sys.stdout.flush()
    where = [f"--clusters={cluster}"] if cluster else []
    signal.signal(signal.SIGTERM, lambda *_: subprocess.run(["scancel", *where, job], check=False))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    for line in submission.stdout:
        sys.stdout.write(visible(line, keep="\n"))
    return submission.wait()


def batch_script(launch: LaunchRecord, directory: Path) -> str:
    """Return the batch script of a run.

    Args:
        launch: its ranks, hosts and launcher, whose options go before those in the script.
        directory: the run directory, which all nodes share.
    """
    each = launch.ranks // launch.host_count
    name = "".join(one if one.isalnum() or one in "._-" else "-" for one in directory.name)
    options = [
        f"--job-name=vinedresser-{name}",
        f"--nodes={launch.host_count}",
        "--ntasks-per-node=1",
        # A core for each rank, unless an option says otherwise.
        f"--cpus-per-task={each}",
        f"--output={shlex.quote(str(directory / 'slurm.txt'))}",
        "--open-mode=append",
        # A run is never started twice.
        "--no-requeue",
    ]
    if launch.gpus_per_rank:
        options.append(f"--gpus-per-node={each * launch.gpus_per_rank}")
    if not isinstance(launch.hosts, int):
        options.append(f"--nodelist={','.join(launch.hosts)}")
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options)]
    # srun no longer takes this from the job.
    lines.append(f'export SRUN_CPUS_PER_TASK="${{SLURM_CPUS_PER_TASK:-{each}}}"')
    lines.append(f"exec srun --kill-on-bad-exit=0 {shlex.join(host_command(directory))}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
