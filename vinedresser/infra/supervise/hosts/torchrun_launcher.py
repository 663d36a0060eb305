"""Start the hosts of a run by torchrun: here, and on other hosts by ssh.

python -m vinedresser.infra.supervise.hosts.torchrun_launcher RUN
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from vinedresser.errors import NotARun
from vinedresser.infra.supervise.hosts.commands import host_command, passed_names
from vinedresser.infra.supervise.hosts.placing import is_here
from vinedresser.infra.supervise.supervisor.prctl import end_with_parent
from vinedresser.infra.supervise.supervisor.rank_environment import ReservedPorts
from vinedresser.objects import LocalStorage
from vinedresser.store.records import RUN_ID_VARIABLE, RUN_VARIABLE, LaunchRecord, read_record

# Otherwise restarts, and the ranks' own store, may read what an earlier attempt has left in it.
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def main(directory: Path) -> int:
    """Start torchrun on each host, and wait for all; return the exit code of the first failure."""
    launch = read_record(LocalStorage(directory), LaunchRecord)
    if launch is None:
        raise NotARun(f"{directory}: has no {LaunchRecord.KEY}")
    hosts = [""] if isinstance(launch.hosts, int) else launch.hosts
    commands = [_command(launch, directory, number) for number in range(len(hosts))]
    environment = {**os.environ, **_OWN_STORE}
    parent = os.getpid()
    started = [
        subprocess.Popen(
            command if not host or is_here(host) else _by_ssh(host, command, launch),
            env=environment,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: end_with_parent(parent, signal.SIGTERM),  # noqa: PLW1509
        )
        for host, command in zip(hosts, commands, strict=True)
    ]

    def end(*_: object) -> None:
        for one in started:
            one.terminate()

    signal.signal(signal.SIGTERM, end)
    codes: list[int] = []
    for _ in started:
        _, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        codes.append(code if code >= 0 else 128 - code)
        if codes[-1]:
            # It would not notice that another one has ended.
            end()
    return next(filter(None, codes), 0)


def _command(launch: LaunchRecord, directory: Path, number: int) -> list[str]:
    """Return torchrun's command for a host."""
    several = launch.host_count > 1
    where = ["--standalone"]
    if several and not isinstance(launch.hosts, int):
        where = [
            *("--nnodes", str(launch.host_count), "--node-rank", str(number)),
            *("--master-addr", launch.hosts[0], "--master-port", str(_port(launch.hosts[0]))),
        ]
    return [
        *(sys.executable, "-P", "-m", "torch.distributed.run", *where),
        *("--nproc-per-node", str(launch.ranks // launch.host_count)),
        *launch.system.options,
        *("--no-python", *host_command(directory)),
    ]


_ports: dict[str, int] = {}


def _port(host: str) -> int:
    """Return a port of a host for torchrun, free if the host is this one."""
    if host not in _ports:
        address = is_here(host)
        free = ReservedPorts(1, address or "0.0.0.0")  # noqa: S104 - nothing listens on it
        free.close()
        _ports[host] = free.numbers[0]
    return _ports[host]


def _by_ssh(host: str, command: list[str], launch: LaunchRecord) -> list[str]:
    """Return the command that runs another one on a host.

    No value of a variable that is a secret is part of it: the host must have it.
    """
    names = [one for one in passed_names(launch) if one in (RUN_VARIABLE, RUN_ID_VARIABLE)]
    variables = {name: os.environ[name] for name in names} | _OWN_STORE
    assigned = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    text = f"cd {shlex.quote(launch.cwd)} && {' '.join(assigned)} exec {shlex.join(command)}"
    return ["ssh", "-o", "BatchMode=yes", host, text]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
