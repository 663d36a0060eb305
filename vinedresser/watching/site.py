"""Where the pages are served: the address, the names that reach it, and its certificate."""

from __future__ import annotations

import datetime as dt
import os
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import ConfigError
from vinedresser.watching.people import private_file

__all__ = ["LOOPBACK", "Certificate", "Site", "listen", "read_certificate"]

LOOPBACK = "127.0.0.1"
_MOST_PORTS = 65_535
_PLAIN_PORT, _TLS_PORT = 80, 443


class Certificate(NamedTuple):
    """A certificate of the user's, whose key fits it and which is valid now.

    Attributes:
        chain: PEM file of the certificate and of those that sign it.
        key: PEM file of its private key.
        names: host names and addresses that it is for.
    """

    chain: Path
    key: Path
    names: tuple[str, ...]


class Site(NamedTuple):
    """The addresses by which the pages are reached; a browser sends one of them as the host.

    Attributes:
        port: port of the server.
        names: host names and addresses, the one that is printed first.
        secure: it speaks TLS.
    """

    port: int
    names: tuple[str, ...] = (LOOPBACK, "localhost")
    secure: bool = False

    @property
    def hosts(self) -> list[str]:
        """Values of the header Host of a request to this server."""
        # Browsers leave out the usual port.
        usual = self.port == (_TLS_PORT if self.secure else _PLAIN_PORT)
        ports = [f":{self.port}", ""] if usual else [f":{self.port}"]
        return [f"{_bracketed(name)}{port}" for name in self.names for port in ports]

    @property
    def origins(self) -> list[str]:
        """Values of the header Origin of a request of its own pages."""
        return [f"{self._scheme}://{host}" for host in self.hosts]

    @property
    def address(self) -> str:
        """Address of the front page."""
        return f"{self._scheme}://{self.hosts[0]}/"

    @property
    def _scheme(self) -> str:
        return "https" if self.secure else "http"


def read_certificate(chain: Path, key: Path) -> Certificate:
    """Return a certificate for the server.

    Args:
        chain: PEM file of the certificate and of those that sign it.
        key: PEM file of its private key, without a password.

    Raises:
        ConfigError: a file cannot be read or is open to others, the key does not fit or has a
            password, or the certificate is not valid now or names no host.
    """
    from cryptography import x509

    private_file(key, "--private-key")

    def refuse() -> str:
        raise ConfigError(f"--private-key {key}: has a password; give a key without one")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, refuse)
        certificate = x509.load_pem_x509_certificate(chain.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--certificate {chain}, --private-key {key}: not a certificate in PEM and its key: "
            f"{reason}"
        ) from error
    now, until = dt.datetime.now(dt.UTC), certificate.not_valid_after_utc
    if not certificate.not_valid_before_utc <= now <= until:
        word = "expired" if now > until else "is not valid yet"
        since = until if now > until else certificate.not_valid_before_utc
        raise ConfigError(f"--certificate {chain}: {word} ({since:%Y-%m-%d %H:%M} UTC); renew it")
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound as error:
        raise ConfigError(
            f"--certificate {chain}: names no host (subjectAltName), which browsers ask for"
        ) from error
    hosts = extension.value.get_values_for_type(x509.DNSName)
    addresses = map(str, extension.value.get_values_for_type(x509.IPAddress))
    # A wildcard stands for any name below it, and the host of a request must be a known one.
    names = [name.lower() for name in (*hosts, *addresses) if "*" not in name]
    return Certificate(chain, key, tuple(names))


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that accepts connections.

    Args:
        host: IP address or name of this machine.
        port: port; None: a free one.

    Raises:
        ConfigError: the address is not of this machine, or the port is not free.
    """
    if port is not None and not 0 < port <= _MOST_PORTS:
        raise ConfigError(f"--port {port}: give a port from 1 to {_MOST_PORTS:,}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror}") from error
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(
            f"--host {host} --port {port}: {reason}; leave --port out for a free one"
            if host != LOOPBACK
            else f"--port {port}: {reason}; leave it out for a free port"
        ) from error
    return listening


def _bracketed(name: str) -> str:
    """Return a name as in an address, where IPv6 has brackets."""
    try:
        return f"[{name}]" if ip_address(name).version == 6 else name
    except ValueError:
        return name
