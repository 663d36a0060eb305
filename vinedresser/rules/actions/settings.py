"""The settings of actions, as a configuration file has them under ``[actions.NAME]``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = [
    "AdjustSettings",
    "CommandSettings",
    "EmailSettings",
    "NotifySettings",
    "SnapshotSettings",
]


@dataclass(frozen=True)
class NotifySettings:
    """Whom to tell over HTTP. Exactly one of the first two is given.

    Attributes:
        webhook: where to POST; it is stored with the run.
        webhook_variable: the environment variable that holds it, where it is a secret.
        patience: seconds for which a server that is away is tried.
        insecure: allow http beyond this machine.
    """

    webhook: str = ""
    webhook_variable: str = ""
    patience: float = 60.0
    insecure: bool = False

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if bool(self.webhook) == bool(self.webhook_variable):
            raise ValueError("give either webhook or webhook_variable")
        _check_patience(self.patience)
        url = self.url()
        # What is secret in it must not get into a message.
        shown = "the URL" if self.webhook_variable else f"webhook: {self.webhook!r}"
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError(f"{shown} must begin with https:// and name a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL of the webhook must hold no user and no password")
        if parts.scheme == "http" and not (self.insecure or _is_here(parts.hostname)):
            raise ValueError(f"{shown} must be https, unless insecure = true")

    def url(self) -> str:
        """Return where to POST.

        Raises:
            ValueError: the environment variable is not set.
        """
        return self.webhook or _variable("webhook_variable", self.webhook_variable)


@dataclass(frozen=True)
class EmailSettings:
    """Whom to tell by mail.

    Attributes:
        host: the SMTP server.
        to: addresses of the receivers.
        sender: address of the sender.
        port: of the server.
        starttls: encrypt before anything is said.
        user: to log in as; "" for nobody.
        password_variable: the environment variable that holds the password.
        patience: seconds for which a server that is away is tried.
        insecure: allow to go without encryption beyond this machine.
    """

    host: str
    to: list[str]
    sender: str
    port: int = 587
    starttls: bool = True
    user: str = ""
    password_variable: str = ""
    patience: float = 60.0
    insecure: bool = False

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if not self.to or not all("@" in one for one in (*self.to, self.sender)):
            raise ValueError("to and sender: must be addresses, such as me@example.org")
        if any(not one.isprintable() for one in (*self.to, self.sender, self.user)):
            raise ValueError("to, sender and user: must be one line each")
        if bool(self.user) != bool(self.password_variable):
            raise ValueError("user and password_variable: give both or neither")
        if not (self.starttls or self.insecure or _is_here(self.host)):
            raise ValueError("starttls: must be true, unless insecure = true")
        _check_patience(self.patience)
        self.password()

    def password(self) -> str:
        """Return the password, "" where there is none.

        Raises:
            ValueError: the environment variable is not set.
        """
        if not self.password_variable:
            return ""
        return _variable("password_variable", self.password_variable)


@dataclass(frozen=True)
class CommandSettings:
    """Which program to start.

    Attributes:
        argv: program and arguments; no shell is in between.
        cwd: directory to start it in; that of the trainings where it is not given.
        timeout: seconds after which it is killed.
    """

    argv: list[str]
    cwd: str = "."
    timeout: float = 60.0

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if not self.argv or not self.argv[0]:
            raise ValueError("argv: is empty; give the program and its arguments")
        if not 0 < self.timeout <= 3600:
            raise ValueError(f"timeout: must be from 0 to 3600 seconds, not {self.timeout}")


@dataclass(frozen=True)
class SnapshotSettings:
    """What to keep of the next steps.

    Attributes:
        steps: how many.
        collections: whose full tensors.
    """

    steps: int = 3
    collections: tuple[str, ...] = ("weights", "biases", "gradients", "inputs", "outputs")

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if not 1 <= self.steps <= 1000:
            raise ValueError(f"steps: must be from 1 to 1000, not {self.steps}")
        if not self.collections:
            raise ValueError("collections: is empty")


@dataclass(frozen=True)
class AdjustSettings:
    """Which parameters to change, of those that the training has declared tunable.

    Attributes:
        lr: what the learning rate is multiplied by; None leaves it.
        clip: the norm to which gradients are clipped; None leaves them.
        times: how often in a run, at the most, each is changed.
    """

    lr: float | None = None
    clip: float | None = None
    times: int = 3

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if self.lr is None and self.clip is None:
            raise ValueError("give lr, a factor such as 0.5, or clip, a norm such as 1.0")
        if self.lr is not None and not 0 < self.lr < 1:
            raise ValueError(f"lr: must be a factor between 0 and 1, not {self.lr}")
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ValueError(f"clip: must be a norm greater than 0, not {self.clip}")
        if self.times < 1:
            raise ValueError(f"times: must be at least 1, not {self.times}")


def _check_patience(seconds: float) -> None:
    if not 0 <= seconds <= 3600:
        raise ValueError(f"patience: must be from 0 to 3600 seconds, not {seconds}")


def _variable(key: str, name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"{key}: there is no environment variable {name!r}")
    return value


def _is_here(host: str) -> bool:
    """Say whether a host is this machine, as its name or address alone tells."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
