"""Which ranks a process is to start, and the address of its host, as its launcher tells."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vinedresser.errors import LaunchError
from vinedresser.infra.supervise.supervisor.rank_environment import LOOPBACK
from vinedresser.store.records import LaunchRecord

__all__ = [
    "ADDRESS_VARIABLE",
    "BUNDLE_VARIABLE",
    "Placing",
    "interface_of",
    "is_here",
    "own_address",
    "own_placing",
    "part_size",
]

# Set by launchers that know the address of the host.
ADDRESS_VARIABLE = "VINEDRESSER_ADDRESS"
BUNDLE_VARIABLE = "VINEDRESSER_RAY_BUNDLE"
# Launchers that start a process for each rank, whose child the rank is: programs that are written
# for them expect their variables, and MPI allows no more than one rank in a process and its child.
_PER_RANK = ("mpi", "torchrun")
# The number of the process, its number on its machine, and their number there, by launcher; of MPI
# those of Open MPI, and those of MPICH and its relatives.
_VARIABLES = {
    "mpi": (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ),
    "torchrun": (("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),),
    "slurm": (("SLURM_PROCID",),),
    "kubernetes": (("JOB_COMPLETION_INDEX",),),
    "ray": ((BUNDLE_VARIABLE,),),
}
# Of ioctl(2): the address of an interface.
_SIOCGIFADDR = 0x8915
# An address for documentation, to which nothing is sent.
_ELSEWHERE = ("192.0.2.1", 9)


class Placing(NamedTuple):
    """The place of a process among those that a launcher has started.

    Attributes:
        local_rank: number of the first of them among the ranks of its machine.
        local_size: number of ranks on its machine.
    """

    number: int
    ranks: range
    local_rank: int
    local_size: int


def part_size(launch: LaunchRecord) -> int:
    """Return the number of ranks that each process of the launcher starts."""
    return 1 if launch.system.name in _PER_RANK else launch.ranks // launch.host_count


def own_placing(launch: LaunchRecord) -> Placing:
    """Return the place of this process.

    Raises:
        LaunchError: the launcher did not start it, or has started another number of processes.
    """
    name, size = launch.system.name, part_size(launch)
    sets = _VARIABLES.get(name, ())
    found = next((one for one in sets if all(os.environ.get(v, "").isdecimal() for v in one)), None)
    if found is None:
        raise LaunchError(
            f"{name} did not start this process as one of several: {sets[0][0]} is not set"
        )
    number, *local = (int(os.environ[one]) for one in found)
    if (number + 1) * size > launch.ranks:
        raise LaunchError(f"{name} has started more processes than the run has ranks")
    local_rank, local_size = local or (0, size)
    return Placing(number, range(number * size, (number + 1) * size), local_rank, local_size)


def own_address(hosts: int | Sequence[str]) -> str:
    """Return the IPv4 address at which other hosts reach this one.

    Args:
        hosts: the hosts of the run, or their number.
    """
    if hosts == 1:
        return LOOPBACK
    given = () if isinstance(hosts, int) else hosts
    for name in (os.environ.get(ADDRESS_VARIABLE, ""), *given):
        if found := is_here(name):
            return found
    for name in (os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()):
        # Often 127.0.1.1, in the host's own table of names.
        found = is_here(name)
        if found and not found.startswith("127."):
            return found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(_ELSEWHERE)
        except OSError:
            return LOOPBACK
        return str(route.getsockname()[0])


def interface_of(address: str) -> str:
    """Return the name of the network interface that has an IPv4 address; "" if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                # It has no address.
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""


def is_here(name: str) -> str:
    """Return the address of a host if it is this one, else ""."""
    for address in _addresses(name):
        with socket.socket() as own:
            try:
                own.bind((address, 0))
            except OSError:
                continue
            return address
    return ""


def _addresses(name: str) -> Iterator[str]:
    if not name:
        return
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    yield from (str(one[4][0]) for one in found)
