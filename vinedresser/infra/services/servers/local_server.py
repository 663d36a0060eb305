"""Servers on this machine: free ports, start and stop."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO, NamedTuple

from vinedresser.errors import LaunchError

__all__ = ["LocalServer", "end_of_output", "free_port", "free_ports", "start_server", "stop_server"]

_POLL_SECONDS = 0.1
_LAST_OUTPUT_BYTES = 2000
# Well-known servers have lower ports.
_FIRST_PORT = 10_240
# Ports that are tried at random.
_TRIES = 20


class LocalServer(NamedTuple):
    """A running server.

    Attributes:
        process: its first process, the leader of its own session and process group.
        url: URL at which it answers.
    """

    process: subprocess.Popen[bytes]
    url: str


def free_port(host: str, wanted: int, who: str) -> int:
    """Return the wanted port, or a free one for 0.

    Raises:
        LaunchError: the port is in use; the message names the server that wanted it.
    """
    return free_ports(host, [wanted], who)[0]


def free_ports(host: str, wanted: Sequence[int], who: str) -> list[int]:
    """Return distinct ports: the wanted ones, and a free one for each 0.

    Raises:
        LaunchError: a port is in use; the message names the server that wanted it.
    """
    with ExitStack() as probes:
        ports = []
        for port in wanted:
            try:
                probe = probes.enter_context(_listening(host, port))
            except OSError as error:
                raise LaunchError(f"{who} cannot listen on {host}:{port}: {error}") from error
            ports.append(int(probe.getsockname()[1]))
        return ports


def _listening(host: str, wanted: int) -> socket.socket:
    """Return a socket that listens on a port; for 0, on a free one that no client is given.

    Else the kernel could give it to a connection of any process before the server listens, which
    SeaweedFS does only after seconds.

    Raises:
        OSError: the port is in use.
    """
    clients = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    below = int(clients[0]) - _FIRST_PORT
    for _ in range(_TRIES if below > 0 and not wanted else 0):
        with suppress(OSError):
            return socket.create_server((host, _FIRST_PORT + secrets.randbelow(below)))
    return socket.create_server((host, wanted))


def start_server(
    who: str,
    command: Sequence[str],
    url: str,
    answers: Callable[[], bool],
    *,
    timeout: float,
    environment: Mapping[str, str],
    output: IO[bytes] | None = None,
    umask: int = -1,
) -> LocalServer:
    """Start a server and wait until it answers.

    Args:
        who: its name in messages, such as "MLflow's server".
        command: the program and its arguments.
        url: URL at which it will answer.
        answers: returns whether it answers.
        timeout: seconds to wait for an answer.
        environment: variables for the server, added to the inherited ones.
        output: readable file for its output; None: the output is discarded once it answers.
        umask: of its files; -1: the inherited one.

    Returns:
        The server; end it with `stop_server`.

    Raises:
        LaunchError: it ended or did not answer in time; the message has the end of its output.
    """
    with tempfile.TemporaryFile() if output is None else nullcontext(output) as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
            umask=umask,
        )
        server = LocalServer(process, url)
        try:
            _wait_until_it_answers(who, server, answers, timeout, file)
        except BaseException:
            stop_server(server)
            raise
    return server


def stop_server(server: LocalServer, *, grace: float = 10.0) -> None:
    """Stop a server with all its workers: SIGTERM, then SIGKILL.

    Args:
        server: the result of `start_server`.
        grace: seconds between the two signals.
    """
    _signal_group(server.process, signal.SIGTERM)
    try:
        server.process.wait(grace)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal_group(server.process, signal.SIGKILL)
    server.process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group outlives its leader while a worker is left.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _wait_until_it_answers(
    who: str, server: LocalServer, answers: Callable[[], bool], timeout: float, output: IO[bytes]
) -> None:
    deadline = time.monotonic() + timeout
    while not answers():
        code = server.process.poll()
        if code is not None:
            raise LaunchError(f"{who} ended with code {code}: {end_of_output(output)}")
        if time.monotonic() > deadline:
            raise LaunchError(
                f"{who} did not answer at {server.url} within {timeout:g} s: "
                f"{end_of_output(output)}"
            )
        time.sleep(_POLL_SECONDS)


def end_of_output(output: IO[bytes]) -> str:
    """Return the last lines of a server's output, at most 2,000 bytes.

    Args:
        output: readable file with the output.
    """
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - _LAST_OUTPUT_BYTES, 0))
    return output.read().decode(errors="replace").strip()
