"""Settings of actions: the tables ``[actions.NAME]`` of a configuration file."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from annotated_types import Ge, Gt, Le, Lt

from vinedresser.rules.actions.payloads import PayloadFormat

__all__ = [
    "AdjustSettings",
    "BoostSettings",
    "CommandSettings",
    "EmailSettings",
    "NotifySettings",
    "SnapshotSettings",
]

# Hosts of webhooks whose URL is the only secret.
_CHATS = (
    *("hooks.slack.com", "webhook.office.com", "logic.azure.com", "powerplatform.com"),
    *("discord.com", "discordapp.com", "chat.googleapis.com"),
)
_BLOCK = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
# Seconds to retry.
_Patience = Annotated[float, Ge(0), Le(3600)]


@dataclass(frozen=True)
class NotifySettings:
    """Settings of ``notify``. Give ``webhook``, ``webhook_variable`` or ``block``.

    Attributes:
        webhook: URL to POST to: https, or http on this machine; it is stored with the run, so it
            must not hold a secret.
        webhook_variable: environment variable with the URL, if that is secret, as that of a chat
            program.
        block: a notification block of your Prefect server, ``TYPE/NAME``.
        format: shape of the message: "json", "slack" or "teams".
        patience: seconds to retry, with pauses of 0.5, 1, 2, … 30 s.
        insecure: allow http to other machines.

    Raises:
        ValueError: a value is invalid.
    """

    webhook: str = ""
    webhook_variable: str = ""
    block: str = ""
    format: PayloadFormat = "json"
    patience: _Patience = 60.0
    insecure: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if sum(map(bool, (self.webhook, self.webhook_variable, self.block))) != 1:
            raise ValueError("give either webhook or webhook_variable, or block")
        if self.block:
            self._check_block()
            return
        # A whole URL in a message may show a secret.
        parts, shown = _split(self.url()), self.webhook_variable or "webhook"
        host = parts.hostname or ""
        if parts.scheme not in ("https", "http") or not host:
            raise ValueError(f"{shown}: the URL must start with https:// and contain a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL of the webhook must not contain a user or password")
        if parts.scheme == "http" and not (self.insecure or _is_here(host)):
            raise ValueError(f"{shown}: the URL of {host} must be https, unless insecure = true")
        if self.webhook and _may_be_secret(parts, self.format):
            raise ValueError(
                f"webhook: the URL of {host} may be a secret, and it would be stored with the run; "
                "put it into an environment variable and give the name of that: webhook_variable"
            )

    def _check_block(self) -> None:
        if not _BLOCK.fullmatch(self.block):
            raise ValueError(
                "block: must be the type and the name of a block, such as slack-webhook/team, not "
                f"{self.block!r}"
            )
        if self.format != "json" or self.insecure:
            raise ValueError("format and insecure: not with block, which sends as it is set up")

    def url(self) -> str:
        """Return the URL to POST to.

        Raises:
            ValueError: the environment variable is not set.
        """
        return self.webhook or _variable("webhook_variable", self.webhook_variable)


@dataclass(frozen=True)
class EmailSettings:
    """Settings of ``email``.

    Attributes:
        host: SMTP server.
        to: list of the addresses of the recipients.
        sender: address of the sender.
        port: port of the server.
        starttls: encrypt the connection and verify the certificate.
        user: user to log in as; default: do not log in.
        password_variable: environment variable with the password.
        patience: seconds to retry while the server is unavailable.
        insecure: allow unencrypted connections to other machines.

    Raises:
        ValueError: a value is invalid.
    """

    host: str
    to: list[str]
    sender: str
    port: Annotated[int, Ge(1), Le(65_535)] = 587
    starttls: bool = True
    user: str = ""
    password_variable: str = ""
    patience: _Patience = 60.0
    insecure: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.to or not all("@" in one for one in (*self.to, self.sender)):
            raise ValueError("to and sender: must be email addresses, such as me@example.org")
        if any(not one.isprintable() for one in (*self.to, self.sender, self.user)):
            raise ValueError("to, sender and user: must be one line each")
        if bool(self.user) != bool(self.password_variable):
            raise ValueError("user and password_variable: must be given together")
        if not (self.starttls or self.insecure or _is_here(self.host)):
            raise ValueError("starttls: must be true, unless insecure = true")
        self.password()

    def password(self) -> str:
        """Return the password; "" if there is none.

        Raises:
            ValueError: the environment variable is not set.
        """
        if not self.password_variable:
            return ""
        return _variable("password_variable", self.password_variable)


@dataclass(frozen=True)
class CommandSettings:
    """Settings of ``command``.

    Attributes:
        argv: program and arguments, as a list; they are not passed to a shell.
        cwd: working directory, relative to that of the trainings.
        timeout: seconds after which the program and its child processes are killed.

    Raises:
        ValueError: a value is invalid.
    """

    argv: list[str]
    cwd: str = "."
    timeout: Annotated[float, Gt(0), Le(3600)] = 60.0

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.argv or not self.argv[0]:
            raise ValueError("argv: must not be empty; give the program and its arguments")


@dataclass(frozen=True)
class SnapshotSettings:
    """Settings of ``snapshot``.

    Attributes:
        steps: number of train steps to capture.
        collections: collections to capture in full.

    Raises:
        ValueError: a value is invalid.
    """

    steps: Annotated[int, Ge(1), Le(1000)] = 3
    collections: tuple[str, ...] = ("weights", "biases", "gradients", "inputs", "outputs")

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.collections:
            raise ValueError("collections: must not be empty")


@dataclass(frozen=True)
class AdjustSettings:
    """Settings of ``adjust``: changes of parameters that the training has declared tunable.

    Attributes:
        lr: factor of the learning rate, between 0 and 1; default: no change.
        clip: maximum norm of all gradients together (PyTorch only); default: no change.
        times: maximum number of changes of each parameter in a run.

    Raises:
        ValueError: a value is invalid.
    """

    lr: Annotated[float, Gt(0), Lt(1)] | None = None
    clip: Annotated[float, Gt(0), Lt(math.inf)] | None = None
    times: Annotated[int, Ge(1)] = 3

    def __post_init__(self) -> None:
        """Check the values."""
        if self.lr is None and self.clip is None:
            raise ValueError("give lr, a factor such as 0.5, or clip, a norm such as 1.0")


@dataclass(frozen=True)
class BoostSettings:
    """Settings of ``boost``.

    Attributes:
        factor: factor of the weight of a class that is not learned, above 1.
        classes: maximum number of classes that are boosted for one finding.

    Raises:
        ValueError: a value is invalid.
    """

    factor: Annotated[float, Gt(1), Le(100)] = 4.0
    classes: Annotated[int, Ge(1)] = 3


def _variable(key: str, name: str) -> str:
    if not name.isidentifier():
        # It may be the secret itself.
        raise ValueError(f"{key}: must be the name of an environment variable, such as ALERTS_URL")
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"{key}: environment variable {name!r} is not set")
    return value


def _split(url: str) -> SplitResult:
    """Return the parts of a URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - validates it
    except ValueError as error:
        # Its own message may quote the URL.
        raise ValueError("the URL of the webhook is not a valid URL") from error
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("the URL of the webhook must consist of ASCII letters, digits and signs")
    return parts


def _may_be_secret(parts: SplitResult, shape: PayloadFormat) -> bool:
    """Return whether who knows a URL may post there, as with webhooks of chat programs."""
    host = parts.hostname or ""
    known = any(host == one or host.endswith(f".{one}") for one in _CHATS)
    return bool(parts.query) or known or (shape != "json" and not _is_here(host))


def _is_here(host: str) -> bool:
    """Return whether a name or address stands for this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
