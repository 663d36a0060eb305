"""The formats by name and by the endings of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vinedresser.data.formats.arrays import npy_format, safetensors_format
from vinedresser.data.formats.base import Format
from vinedresser.data.formats.framed import Framed
from vinedresser.data.formats.json_lines import JsonLinesFraming
from vinedresser.data.formats.length_prefixed import LengthPrefixedFraming
from vinedresser.data.formats.tar import TarFraming
from vinedresser.data.formats.tfrecord import TFRecordFraming
from vinedresser.data.formats.whole_files import DescribedFiles, WholeFiles
from vinedresser.data.sources.augmented import DescribedObject
from vinedresser.data.sources.base import DataObject
from vinedresser.errors import ConfigError, MissingDependency, did_you_mean

__all__ = ["format_of", "open_format"]


_PARQUET = "parquet"
_AUGMENTED = "augmented"
_FORMATS: dict[str, Callable[[], Format]] = {
    "tfrecord": lambda: Framed(TFRecordFraming()),
    "length_prefixed": lambda: Framed(LengthPrefixedFraming()),
    "tar": lambda: Framed(TarFraming()),
    "jsonl": lambda: Framed(JsonLinesFraming()),
    "npy": npy_format,
    "safetensors": safetensors_format,
    "files": WholeFiles,
    _AUGMENTED: DescribedFiles,
}
_NAMES = (*_FORMATS, _PARQUET)
_ENDINGS = {
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".tar": "tar",
    ".tgz": "tar",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".safetensors": "safetensors",
    ".parquet": _PARQUET,
}
_COMPRESSED = (".gz", ".zz", ".zlib")


def format_of(objects: Sequence[DataObject], given: str | None) -> str:
    """Return the name of the format of objects.

    Args:
        objects: the objects, at least one.
        given: its name; None: that of an augmented manifest, or what the ending of the first
            object's path or URL stands for.

    Raises:
        ConfigError: it stands for none, or what is given does not suit the objects.
    """
    augmented = {isinstance(one, DescribedObject) for one in objects}
    if augmented != {False}:
        if augmented != {True} or given not in (None, _AUGMENTED):
            raise ConfigError(
                f"an augmented manifest has its own format, {_AUGMENTED}, and cannot be combined "
                "with other sources or formats"
            )
        return _AUGMENTED
    if given == _AUGMENTED:
        raise ConfigError(f"format = {given!r}: only for augmented manifests, *.manifest")
    return given or _by_ending(objects[0].uri)


def _by_ending(uri: str) -> str:
    name = uri.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    raise ConfigError(
        f"{uri}: its ending stands for no format; set format to one of {', '.join(_NAMES)} (files: "
        "each file is one record)"
    )


def open_format(name: str, *, columns: Sequence[str] | None = None) -> Format:
    """Return a format.

    Args:
        columns: columns to read, of Parquet only; None: all.

    Raises:
        ConfigError: the format is unknown, or has no columns.
        MissingDependency: the format needs a package that is not installed.
    """
    if name not in _NAMES:
        raise ConfigError(
            f"format = {name!r}: not one of {', '.join(_NAMES)}{did_you_mean(name, _NAMES)}"
        )
    if name == _PARQUET:
        return _parquet(columns)
    if columns is not None:
        raise ConfigError(f"columns: only Parquet files have columns, and the format is {name}")
    return _FORMATS[name]()


def _parquet(columns: Sequence[str] | None) -> Format:
    try:
        from vinedresser.data.formats.parquet import ParquetFormat
    except ImportError as error:
        raise MissingDependency(
            f'Parquet files need the package {error.name}: pip install "vinedresser[data]"'
        ) from error
    return ParquetFormat(columns)
