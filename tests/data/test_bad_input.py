"""Arguments and files that cannot be used: one line each, which names what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.data import written
from vinedresser.data import Dataset, Mixture
from vinedresser.errors import ConfigError, DamagedData, KeyMissing, MissingDependency


@pytest.mark.parametrize("wrong", [True, -1, 0.5, "10"])
def test_damaged_records_are_skipped_by_number_only(tmp_path: Path, wrong: Any) -> None:
    written.write_files(tmp_path / "a", [3])
    message = rf"skip_damaged = {wrong!r}: must be a number of records, such as 10"
    with pytest.raises(ConfigError, match=message):
        Dataset(tmp_path / "a", batch_size=1, skip_damaged=wrong)
    with pytest.raises(ConfigError, match=message):
        Mixture({"a": tmp_path / "a"}, batch_size=1, skip_damaged=wrong)


@pytest.mark.parametrize("wrong", [None, 3, b"a", [3], "a\0b"])
def test_what_is_no_source_is_named(wrong: Any) -> None:
    with pytest.raises(
        ConfigError, match="not a source; name a file, a folder, a prefix or a glob"
    ):
        Dataset(wrong, batch_size=1)


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_is_named(tmp_path: Path, content: bytes) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=r"/a.jsonl has no records"):
        Dataset(tmp_path / "a.jsonl", batch_size=1)
    with pytest.raises(ConfigError, match=r"/a.jsonl and 1 more have no records"):
        Dataset(tmp_path / "*.jsonl", batch_size=1)


def test_a_file_of_another_format_says_what_it_looks_like(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for content, kind in (
        (b"\x89PNG" + bytes(600), "a PNG image"),
        (b"PK\x03\x04" + bytes(600), "a ZIP archive"),
        (b'{"x": 1}\n' * 100, "JSON"),
        (b'{"x":1}\n' * 100, "JSON"),
        (written.tar([b"abcd"]), "a tar archive"),
        (written.parquet_file([b"abcd"]), "Parquet"),
    ):
        path.write_bytes(content)
        with pytest.raises(DamagedData, match=f"not a TFRecord file .*it looks like {kind}"):
            Dataset(path, batch_size=1)


def test_a_manifest_is_named_with_the_object_that_is_missing(tmp_path: Path) -> None:
    manifest = tmp_path / "train.manifest"
    manifest.write_text(f'[{{"prefix": "{tmp_path}/"}}, "a.tfrecord"]')
    with pytest.raises(KeyMissing, match=r"train.manifest: .*/a.tfrecord: no such file"):
        Dataset(manifest, batch_size=1)


def test_a_format_that_needs_a_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(written.parquet_file([b"abcd"]))
    monkeypatch.delitem(sys.modules, "vinedresser.data.formats.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"pyarrow: pip install \"vinedresser\[data\]\""):
        Dataset(tmp_path / "a.parquet", batch_size=1)
