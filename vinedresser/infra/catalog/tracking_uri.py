"""Tracking URIs: validation, absolute form and database files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["absolute_uri", "mlflow_uri", "sqlite_path"]

_SCHEMES = ("http", "https", "mssql", "mysql", "postgresql", "sqlite")
_SQLITE = "sqlite:///"


def absolute_uri(uri: str, base: Path | None = None) -> str:
    """Return a tracking URI that does not depend on the working directory.

    Args:
        uri: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``http://host:port`` or a
            database URL of a kind that MLflow supports.
        base: directory to which relative paths refer; None: the working directory.

    Raises:
        ConfigError: not a tracking URI.
    """
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if "://" not in uri or scheme not in _SCHEMES:
        raise ConfigError(
            f"{uri!r}: not a tracking URI; MLflow takes sqlite:///FILE.db, http://HOST:PORT or a "
            f"database URL{did_you_mean(scheme, _SCHEMES)}"
        )
    path = sqlite_path(uri)
    if path is None:
        return uri
    _, separator, query = uri.partition("?")
    if base is not None:
        path = base.absolute() / _database(uri)
    return f"{_SQLITE}{quote(str(path))}{separator}{query}"


def sqlite_path(uri: str) -> Path | None:
    """Return the absolute path of the database file; None if it is not a SQLite URI.

    Raises:
        ConfigError: a SQLite URI without a file, which processes could not share.
    """
    if not uri.startswith("sqlite"):
        return None
    name = _database(uri)
    if not uri.startswith(_SQLITE) or name in (Path(), Path(":memory:")):
        raise ConfigError(f"{uri!r}: names no database file; give sqlite:///FILE.db")
    return name.absolute()


def mlflow_uri(uri: str) -> str:
    """Return an absolute tracking URI in the form that MLflow expects.

    SQLAlchemy 2.0 does not decode percent escapes in the path of a SQLite URI.

    Raises:
        ConfigError: the path contains a question mark, which no such URI can express.
    """
    path = sqlite_path(uri)
    if path is None:
        return uri
    if "?" in str(path):
        raise ConfigError(f"{uri!r}: MLflow cannot open a path that contains a question mark")
    _, separator, query = uri.partition("?")
    return f"{_SQLITE}{path}{separator}{query}"


def _database(uri: str) -> Path:
    """Return the path in a SQLite URI, relative or absolute as written."""
    return Path(unquote(uri.removeprefix(_SQLITE).partition("?")[0])).expanduser()
