"""The standing S3 server: `vinedresser up --s3` and `vinedresser down`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError, MissingDependency
from vinedresser.infra.services.servers.local_server import stop_server
from vinedresser.infra.services.servers.note import (
    Note,
    first_marked,
    mark_variable,
    opened_note,
    read_note,
    usual_port,
)
from vinedresser.infra.services.servers.seaweed import account_in, start_seaweed
from vinedresser.infra.services.servers.seaweed_sockets import remove_sockets
from vinedresser.processes import ProcessIdentity, identify, is_alive, kill_group

__all__ = ["StandingServer", "bring_up", "default_data", "make_bucket", "noted_server", "take_down"]

_PORT, _NOTE = 8333, "s3"


@dataclass(frozen=True)
class StandingServer:
    """A running S3 server on this machine.

    Attributes:
        process: identity of its first process, the leader of its group.
        url: URL at which it answers.
        bucket: an existing bucket.
        data: absolute path of the folder with its files.
        mark: marks the processes of a server that was about to start, see `mark_variable`.
    """

    process: dict[str, Any]
    url: str
    bucket: str
    data: str
    mark: str = ""

    @property
    def lives(self) -> bool:
        """Whether its process is alive."""
        return bool(self.process) and is_alive(ProcessIdentity(**self.process)) is True

    def environment(self) -> dict[str, str]:
        """Return the environment variables with its address and credentials."""
        return account_in(Path(self.data)).environment(self.url)


def default_data() -> Path:
    """Return the default folder of the server's files."""
    shared = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(shared, "vinedresser", "s3")


def bring_up(
    data: Path | None = None,
    *,
    port: int | None = None,
    bucket: str = "vinedresser",
    say: Callable[[str], object] = lambda _: None,
) -> StandingServer:
    """Start the standing server, or return the running one, and create the bucket.

    Args:
        data: folder of its files; None: `default_data`.
        port: port for S3; None: 8333, or a free one if that is in use.
        bucket: created if missing.
        say: is called with a sentence about a server that was left unfinished, and ended.

    Raises:
        ConfigError: a server with other data or on another port is already running.
        MissingDependency: the program ``weed`` or boto3 is not installed.
        LaunchError: it could not be started.
    """
    with opened_note(_NOTE) as note:
        if _end_unfinished(note):
            say("ended the S3 server that was left unfinished")
        running = _running(note)
        if running is not None:
            _check_same(running, data, port)
            make_bucket(bucket, running.environment())
            return running
        folder = (data or default_data()).absolute()
        starting = StandingServer({}, "", bucket, str(folder), uuid.uuid4().hex)
        note.write(asdict(starting))
        server = start_seaweed(
            folder,
            port=usual_port(port, _PORT, "SeaweedFS"),
            environment=mark_variable(starting.mark),
        )
        try:
            make_bucket(bucket, account_in(folder).environment(server.url))
            identity = identify(server.process.pid)
            if identity is None:
                raise LaunchError(f"SeaweedFS has ended again; see {folder / 'log.txt'}")
            started = replace(starting, process=asdict(identity), url=server.url)
            note.write(asdict(started))
        except BaseException:
            stop_server(server, grace=0.0)
            remove_sockets(folder)
            raise
        # The server outlives this process: suppress the ResourceWarning of Popen.
        server.process.returncode = 0
        return started


def take_down() -> StandingServer | None:
    """Stop and return the standing server; None if there is none."""
    with opened_note(_NOTE) as note:
        unfinished = _end_unfinished(note)
        running, said = _running(note), note.read()
        if running is not None:
            _kill(running.process)
        if said is not None:
            # Also those of a server that was killed.
            remove_sockets(Path(said["data"]))
        note.write(None)
        return running or unfinished


def noted_server() -> StandingServer | None:
    """Return the server that was started and not stopped, which may have ended; None for none."""
    said = read_note(_NOTE)
    return None if said is None else StandingServer(**said)


def make_bucket(bucket: str, environment: Mapping[str, str]) -> None:
    """Create a bucket if it does not exist.

    Args:
        bucket: its name.
        environment: variables with the server's address and credentials.

    Raises:
        MissingDependency: boto3 is not installed.
        ConfigError: the bucket name is invalid.
        LaunchError: the server refused for another reason.
    """
    try:
        import boto3
        from botocore import exceptions
    except ImportError as error:
        raise MissingDependency(
            f'a bucket needs the package {error.name}: pip install "vinedresser[s3]"'
        ) from error
    session = boto3.session.Session(
        environment["AWS_ACCESS_KEY_ID"],
        environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )
    client = session.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
    try:
        client.create_bucket(Bucket=bucket)
    except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        pass
    except exceptions.ParamValidationError as error:
        raise ConfigError(f"invalid bucket name {bucket!r}: {error}") from error
    except (exceptions.ClientError, exceptions.BotoCoreError) as error:
        where = client.meta.endpoint_url
        raise LaunchError(f"cannot create bucket {bucket} at {where}: {error}") from error
    finally:
        client.close()


def _running(note: Note) -> StandingServer | None:
    """Return the server of the note if it is running."""
    said = note.read()
    if said is None:
        return None
    server = StandingServer(**said)
    return server if server.lives else None


def _end_unfinished(note: Note) -> StandingServer | None:
    """End a server whose start was not completed, and return it; None if there is none."""
    said = note.read()
    if said is None or said["process"]:
        return None
    server = StandingServer(**said)
    process = first_marked(server.mark, "server")
    if not process:
        return None
    _kill(process)
    remove_sockets(Path(server.data))
    return replace(server, process=process)


def _kill(leader: dict[str, Any]) -> None:
    """Kill a server: it would take at least 15 s to shut down, and loses nothing when killed."""
    kill_group(ProcessIdentity(**leader))


def _check_same(running: StandingServer, data: Path | None, port: int | None) -> None:
    other_data = data is not None and str(data.absolute()) != running.data
    other_port = port is not None and not running.url.endswith(f":{port}")
    if other_data or other_port:
        raise ConfigError(
            f"an S3 server is already running at {running.url} in {running.data}; "
            "stop it with `vinedresser down`"
        )
