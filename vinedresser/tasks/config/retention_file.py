"""`retention.toml`: which runs of a store are removed, by `vinedresser gc` or on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from annotated_types import Ge

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.infra.configuration import build, load_toml
from vinedresser.objects import Location
from vinedresser.quantities import parse_size, parse_time
from vinedresser.store.status import RunState
from vinedresser.tasks.config.known_tables import check_tables
from vinedresser.tasks.config.locations import store_in

__all__ = ["Policy", "Retention", "RetentionTable", "What", "load_retention"]

What = Literal["runs", "snapshots", "checkpoints"]


@dataclass(frozen=True)
class Policy:
    """Which runs are to be removed.

    Attributes:
        what: what is removed of them.
        older: seconds since their end; 0.0: any.
        keep: the newest so many stay.
        states: how they ended, such as "finished"; (): in any way.
        most_bytes: the oldest are removed until the store takes no more; None: all are.

    Raises:
        ConfigError: it says nothing about which.
    """

    what: What = "runs"
    older: float = 0.0
    keep: int = 0
    states: Sequence[str] = ()
    most_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse to remove everything."""
        if not (self.older or self.keep or self.states or self.most_bytes is not None):
            raise ConfigError("say which runs: older, keep, state or size")

    @classmethod
    def parsed(
        cls, where: str, *, what: str, older: str, keep: int, state: Sequence[str], size: str
    ) -> Self:
        """Return a policy that a user has written.

        Args:
            where: prefix of a key in messages, such as "--".
            what: see `Policy`.
            older: a time such as "30 d"; "" for any.
            keep: see `Policy`.
            state: see `states`.
            size: a size such as "50 GB"; "" for none.

        Raises:
            ConfigError: a value is invalid, or nothing says which runs.
        """
        kinds: tuple[What, ...] = get_args(What)
        kind = next((one for one in kinds if one == what), None)
        if kind is None:
            raise ConfigError(
                f"{where}what {what!r}: {', '.join(kinds)}{did_you_mean(what, kinds)}"
            )
        for one in state:
            if one not in (known := get_args(RunState)):
                raise ConfigError(
                    f"{where}state {one!r}: {', '.join(known)}{did_you_mean(one, known)}"
                )
        key = "older"
        try:
            seconds = parse_time(older) if older else 0.0
            key = "size"
            most = parse_size(size) if size else None
        except ValueError as error:
            raise ConfigError(f"{where}{key}: {error}") from error
        return cls(kind, seconds, keep, state, most)


@dataclass(frozen=True)
class RetentionTable:
    """Which runs of a store are not needed any more.

    Attributes:
        store: directory of the runs, or "s3://bucket/prefix".
        older: only those that ended so long ago, such as "30 d".
        keep: the newest N runs stay.
        state: only those that ended so, such as "crashed".
        size: only until the store takes no more, such as "50 GB", in a directory.
        what: "runs", or their "checkpoints" or "snapshots".
        delete: remove them; without it, they are listed.
    """

    store: str
    older: str = ""
    keep: Annotated[int, Ge(0)] = 0
    state: list[str] = field(default_factory=list)
    size: str = ""
    what: str = "runs"
    delete: bool = False


@dataclass(frozen=True)
class Retention:
    """A checked retention file.

    Attributes:
        policy: which of its runs are removed.
        delete: whether they are removed, or listed.
    """

    store: Location
    policy: Policy
    delete: bool


def load_retention(path: Path) -> Retention:
    """Read and check a retention file.

    Args:
        path: the TOML file.

    Raises:
        ConfigError: the file is invalid; the message names the key and what is expected.
    """
    document = load_toml(path)
    check_tables(document, ["retention"], path)
    where = f"{path}: retention"
    table = build(RetentionTable, document.get("retention", {}), where)
    store = store_in(table.store, path.absolute().parent)
    if isinstance(store, Path) and not store.is_dir():
        raise ConfigError(f"{where}.store: {store}: no such directory")
    if table.size and not isinstance(store, Path):
        raise ConfigError(f"{where}.size: {store}: sizes are known in a directory only")
    if not (table.older or table.keep or table.state or table.size):
        raise ConfigError(f"{where}: say which runs: older, keep, state or size")
    policy = Policy.parsed(
        f"{where}.",
        what=table.what,
        older=table.older,
        keep=table.keep,
        state=table.state,
        size=table.size,
    )
    return Retention(store, policy, table.delete)
