"""Sources name files; the index of a file is kept until the file changes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.data import written
from vinedresser.data import Dataset
from vinedresser.errors import ConfigError, DamagedData, KeyMissing, NotAFile, SourceChanged


def names(dataset: Dataset) -> list[str]:
    return [Path(uri).name for uri in dataset.uris]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written.write_files(tmp_path / "data", [3, 4, 5])
    return tmp_path / "data"


def test_a_folder_has_all_data_below_it(folder: Path) -> None:
    (folder / "a" / "_temporary").mkdir(parents=True)
    for name in ("a/x.tfrecord", "a/_temporary/y.tfrecord", ".z.tfrecord", "_SUCCESS"):
        shutil.copy(folder / "000.tfrecord", folder / name)
    (folder / "empty.tfrecord").touch()
    expected = ["000.tfrecord", "001.tfrecord", "002.tfrecord", "x.tfrecord"]
    assert names(Dataset(folder, batch_size=1)) == expected
    assert names(Dataset(f"{folder}/", batch_size=1)) == expected


def test_several_sources_keep_their_order(folder: Path) -> None:
    sources: list[str | Path] = [folder / "002.tfrecord", f"{folder}/00[01].*"]
    assert names(Dataset(sources, batch_size=1)) == ["002.tfrecord", "000.tfrecord", "001.tfrecord"]


def test_a_sign_of_globs_may_be_in_a_name(folder: Path) -> None:
    shutil.copy(folder / "000.tfrecord", folder / "a[1].tfrecord")
    assert names(Dataset(folder / "a[1].tfrecord", batch_size=1)) == ["a[1].tfrecord"]


def test_a_home_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert Dataset("~/data", batch_size=1).records == 12


def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(KeyMissing, match=f"{folder}/9.tfrecord: no such file"):
        Dataset(folder / "9.tfrecord", batch_size=1)
    with pytest.raises(ConfigError, match=rf"{folder}/\*.tar: there are no objects"):
        Dataset(folder / "*.tar", batch_size=1)
    with pytest.raises(ConfigError, match="no sources are given"):
        Dataset([], batch_size=1)
    with pytest.raises(ConfigError, match="gs://bucket/a: not supported"):
        Dataset("gs://bucket/a", batch_size=1)
    (folder / "data.bin").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"data.bin: its ending stands for no format; set format"):
        Dataset(folder / "data.bin", batch_size=1)
    os.mkfifo(folder / "pipe.tfrecord")
    with pytest.raises(NotAFile, match=r"pipe.tfrecord: not a file"):
        Dataset(folder / "pipe.tfrecord", batch_size=1)


@pytest.mark.parametrize("change", ["replaced", "appended", "removed"])
def test_a_file_that_changes_is_an_error(change: str, folder: Path) -> None:
    path = folder / "000.tfrecord"
    dataset = Dataset(path, batch_size=1)
    if change == "replaced":
        # Of the same size.
        content = written.tfrecord(written.records(3)[::-1])
        (folder / "new").write_bytes(content)
        (folder / "new").rename(path)
    elif change == "appended":
        with path.open("ab") as file:
            file.write(b"x")
    else:
        path.unlink()
    with pytest.raises((SourceChanged, KeyMissing), match=f"{path}: "):
        list(dataset)
    if change == "replaced":
        # The index of the old file is not used.
        assert written.values(Dataset(path, batch_size=1)) == written.records(3)[::-1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"offsets": [0], "numbers": [], "flaw": null}',
        b'{"offsets": [0], "numbers": [0], "flaw": [1]}',
    ],
)
def test_a_damaged_index_is_made_again(
    content: bytes, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = written.values(Dataset(folder, batch_size=1))
    kept = [*(tmp_path / "vinedresser" / "data").iterdir()]
    assert len(kept) == 3
    for entry in kept:
        entry.write_bytes(content)
    assert written.values(Dataset(folder, batch_size=1)) == expected


def test_a_cache_that_cannot_be_written_does_no_harm(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Dataset(folder, batch_size=1).records == 12


def test_damage_is_remembered_in_the_index(folder: Path) -> None:
    path = folder / "000.tfrecord"
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(DamagedData, match=f"{path}: record 2 at byte .*: it is cut off"):
            Dataset(path, batch_size=1)
        assert Dataset(path, batch_size=1, skip_damaged=1).records == 2


def test_statistics_add_up(folder: Path) -> None:
    dataset = Dataset(folder, batch_size=5, decode=len)
    for _ in range(2):
        list(dataset)
    found = dataset.statistics
    sizes = sum(path.stat().st_size for path in folder.iterdir())
    assert (found.batches, found.records, found.bytes) == (6, 24, 2 * sizes)
    assert min(found.waiting, found.parsing, found.decoding, found.consuming) > 0


def test_an_augmented_manifest_describes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines: list[dict[str, Any]] = [
        {"source-ref": f"{name}.jpg", "label": n, "meta": {}} for n, name in enumerate("abc")
    ]
    for line in lines:
        Path(line["source-ref"]).write_bytes(line["source-ref"].encode())
    text = "\n\n".join(map(json.dumps, lines))
    Path("output.manifest").write_text(f"{text}\n", encoding="utf-8")
    dataset = Dataset("output.manifest", batch_size=2)
    assert (dataset.format, dataset.records) == ("augmented", 3)
    expected = [line | {"source-ref": line["source-ref"].encode()} for line in lines]
    batches = list(dataset)
    assert written.values(batches) == expected
    assert batches[1].origins[0] == ("c.jpg", 0, 0)
    for sources in (["output.manifest", "a.jpg"], "a.jpg"):
        with pytest.raises(ConfigError, match="augmented"):
            Dataset(sources, batch_size=2, format="augmented")
    for wrong, said in (
        ('{"source-ref": "d.jpg"}', "d.jpg: no such file"),
        ('{"source": "text"}', 'must look like {"source-ref": '),
        ("{", "not valid JSON"),
    ):
        Path("b.manifest").write_text(f"{text}\n{wrong}\n", encoding="utf-8")
        with pytest.raises((ConfigError, KeyMissing), match=f"b.manifest: line 6: {said}"):
            Dataset("b.manifest", batch_size=2)
