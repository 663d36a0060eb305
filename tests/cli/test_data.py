"""`vinedresser data`: what the commands print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vinedresser.cli import main
from vinedresser.data import encode_example, write


def test_a_record_is_shown_without_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def shown(*arguments: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["vinedresser", "data", *arguments])
        with pytest.raises(SystemExit, match="0"):
            main()
        return capsys.readouterr().out.splitlines()

    png = b"\x89PNG" + bytes(100)
    value = {"label": 3, "\x1b[31m": "two\x1b[2J\nlines", "image": png, "x": [0.5] * 20}
    write([encode_example(value), b"\x1b]0;title\x07", b"plain text"], "data")
    lines = shown("show", "data/part-00000.tfrecord#0")
    assert lines[:2] == ["data/part-00000.tfrecord: record 0 at byte 0", "tf.train.Example"]
    text = " ".join(" ".join(lines).split())
    assert "label 3" in text
    assert r"\x1b[31m" in text
    assert "104 bytes: 89 50 4e 47 00" in text
    assert "it looks like a PNG image" in text
    assert "20 float32: 0.5, 0.5" in text
    assert shown("show", "data/part-00000.tfrecord#1")[1].startswith("10 bytes: 1b 5d")
    assert shown("show", "data/part-00000.tfrecord#2")[1] == "plain text"
    assert not any(set("".join(lines)) & set("\x1b\x07"))
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(png)
    command = ("convert", "cat", "images", "--format", "files", "--class", "folder")
    assert shown(*command) == ["images   1 records   0.0 MB   1 parts"]
    assert shown(*command) == ["images   1 records   0.0 MB   1 parts, 1 already complete"]
    (tmp_path / "a.toml").write_text('[data]\ntrain = "images"\n', encoding="utf-8")
    short = ("--seconds", "0.001", "--rounds", "1")
    assert "plain reading" in "\n".join(shown("bench", "a.toml", *short))
    (line,) = shown("bench", "images", "--json", *short)
    assert json.loads(line)["records"] == 1
    monkeypatch.setattr("sys.argv", ["vinedresser", "data", "bench", "a.toml", "--channel", "tran"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "no channel 'tran'; did you mean train?" in capsys.readouterr().err
