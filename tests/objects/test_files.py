"""Files that libraries write by their path, replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vinedresser.objects.files import replacing


def test_a_file_is_replaced_at_the_end_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "new" / "weights.h5"
    for content in ("one", "two"):
        with replacing(path) as part:
            part.write_text(content, encoding="utf-8")
            # Libraries choose the format by the suffix.
            assert part.suffix == ".h5"
            assert part.parent == path.parent
            assert path.exists() == (content == "two")
        assert path.read_text(encoding="utf-8") == content

    def fail() -> None:
        with replacing(path) as part:
            part.write_text("thr", encoding="utf-8")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert path.read_text(encoding="utf-8") == "two"
    assert [one.name for one in path.parent.iterdir()] == ["weights.h5"]


def test_no_link_can_be_laid_where_a_file_will_be_written(tmp_path: Path) -> None:
    path = tmp_path / "weights.h5"
    names = set()
    for _ in range(3):
        with replacing(path) as part:
            names.add(part.name)
            part.touch()
    assert len(names) == 3
    foreseen = f".tmp-{os.getpid()}-{path.name}"
    assert all(name.startswith(".tmp-") and name != foreseen for name in names)
