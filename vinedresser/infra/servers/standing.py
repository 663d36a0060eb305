"""The S3 server that stays until it is stopped: `vinedresser up --s3` and `vinedresser down`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError, MissingDependency
from vinedresser.infra.servers.local_server import stop_server
from vinedresser.infra.servers.note import Note, end_group, opened_note, usual_port
from vinedresser.infra.servers.seaweed import account_in, start_seaweed
from vinedresser.infra.servers.seaweed_sockets import remove_sockets
from vinedresser.processes import ProcessIdentity, identify, is_alive

__all__ = ["StandingServer", "bring_up", "default_data", "make_bucket", "take_down"]

_PORT, _NOTE = 8333, "s3"
# SeaweedFS takes 15 s and more to end by itself, and loses nothing when it is killed.
_GRACE = 3.0


@dataclass(frozen=True)
class StandingServer:
    """An S3 server that runs on this machine.

    Attributes:
        process: identity of its first process, the leader of its group.
        url: where it answers.
        bucket: one that it has.
        data: the folder of its files, absolute.
    """

    process: dict[str, Any]
    url: str
    bucket: str
    data: str

    def environment(self) -> dict[str, str]:
        """Return the variables by which programs find it and are let in."""
        return account_in(Path(self.data)).environment(self.url)


def default_data() -> Path:
    """Return the folder of the server's files unless the user names another."""
    shared = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(shared, "vinedresser", "s3")


def bring_up(
    data: Path | None = None, *, port: int | None = None, bucket: str = "vinedresser"
) -> StandingServer:
    """Start the standing server, or find the one that runs; it has the bucket afterwards.

    Args:
        data: the folder of its files; None: `default_data`.
        port: where to serve S3; None: 8333, or a free one where that is in use.
        bucket: made when it is not there.

    Raises:
        ConfigError: one runs already, on other data or another port.
        MissingDependency: there is no program ``weed``, or no boto3.
        LaunchError: it could not be started.
    """
    with opened_note(_NOTE) as note:
        running = _running(note)
        if running is not None:
            _check_same(running, data, port)
            make_bucket(bucket, running.environment())
            return running
        folder = (data or default_data()).absolute()
        server = start_seaweed(folder, port=usual_port(port, _PORT, "SeaweedFS"))
        try:
            make_bucket(bucket, account_in(folder).environment(server.url))
            identity = identify(server.process.pid)
            if identity is None:
                raise LaunchError(f"SeaweedFS has ended again; see {folder / 'log.txt'}")
            started = StandingServer(asdict(identity), server.url, bucket, str(folder))
            note.write(asdict(started))
        except BaseException:
            stop_server(server, grace=0.0)
            remove_sockets(folder)
            raise
        # It is to stay: nobody is to complain at our end that it still runs.
        server.process.returncode = 0
        return started


def take_down() -> StandingServer | None:
    """Stop the standing server and return which it was; None when there is none."""
    with opened_note(_NOTE) as note:
        running = _running(note)
        if running is not None:
            end_group(running.process, _GRACE)
            remove_sockets(Path(running.data))
        note.write(None)
        return running


def make_bucket(bucket: str, environment: Mapping[str, str]) -> None:
    """Make a bucket unless it is there.

    Args:
        bucket: its name.
        environment: the variables by which the server is found.

    Raises:
        MissingDependency: boto3 is not installed.
        ConfigError: it is no name for a bucket.
        LaunchError: the server refused otherwise.
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
        raise ConfigError(f"bucket {bucket!r}: not a name for a bucket: {error}") from error
    except (exceptions.ClientError, exceptions.BotoCoreError) as error:
        raise LaunchError(f"no bucket {bucket} at {client.meta.endpoint_url}: {error}") from error
    finally:
        client.close()


def _running(note: Note) -> StandingServer | None:
    """Return the server of the note if it lives."""
    said = note.read()
    if said is None:
        return None
    server = StandingServer(**said)
    return server if is_alive(ProcessIdentity(**server.process)) else None


def _check_same(running: StandingServer, data: Path | None, port: int | None) -> None:
    other_data = data is not None and str(data.absolute()) != running.data
    other_port = port is not None and not running.url.endswith(f":{port}")
    if other_data or other_port:
        raise ConfigError(
            f"an S3 server runs already, at {running.url} on {running.data}; "
            "`vinedresser down` stops it"
        )
