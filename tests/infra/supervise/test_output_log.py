"""Lines out of chunks of bytes, and a log with bounds."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vinedresser.infra.supervise.supervisor.output_log import LineSplitter, OutputLog
from vinedresser.testing.small_disk import small_disk

CHUNKS = st.lists(
    st.one_of(
        st.binary(max_size=8),
        st.text("aé∂🍇 \r\n", max_size=8).map(str.encode),
    ),
    max_size=8,
)


def lines_at_once(content: bytes, most: int) -> list[str]:
    """Return what a splitter is to give, from the whole content."""
    *whole, rest = content.decode("utf-8", "replace").split("\n")
    lines = [re.sub(r"\A.*\r", "", line.removesuffix("\r"), flags=re.DOTALL) for line in whole]
    rest = re.sub(r"\A.*\r(?=.)", "", rest, flags=re.DOTALL)
    lines += [rest.removesuffix("\r")] if rest else []
    return [
        line if len(line) <= most else f"{line[:most]} [{len(line) - most} more characters cut]"
        for line in lines
    ]


@given(CHUNKS)
def test_the_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    splitter = LineSplitter(most=1000)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close()
    assert lines == lines_at_once(b"".join(chunks), most=1000)


@given(st.lists(st.text("ab\n", max_size=8).map(str.encode), max_size=8))
def test_the_lines_are_cut_alike_in_whatever_chunks(chunks: list[bytes]) -> None:
    splitter = LineSplitter(most=3)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close()
    assert lines == lines_at_once(b"".join(chunks), most=3)


def test_a_progress_bar_leaves_its_last_state() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"start\r\n\r 10%|#") == ["start"]
    assert splitter.feed(b"    |\r 50%|##  |\r") == []
    assert splitter.feed(b"100%|####|\nend\r\n") == ["100%|####|", "end"]
    assert splitter.close() == []


def test_a_full_log_keeps_the_end(tmp_path: Path) -> None:
    problems: list[str] = []
    log = OutputLog(tmp_path, "log.txt", problems.append, most=1000)
    for number in range(20_000):
        log.write([f"line {number}"])
    log.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    notice = lines.index("[vinedresser: limit of 1000 bytes reached; only the end is kept]")
    begin, left_out, end = lines[:notice], lines[notice + 1], lines[notice + 2 :]
    numbers = [int(line.removeprefix("line ")) for line in begin + end]
    assert numbers[0] == 0
    assert numbers[-1] == 19_999
    gaps = [(here, there) for here, there in pairwise(numbers) if there != here + 1]
    assert len(gaps) == 1
    missing = sum(len(f"line {number}\n") for number in range(gaps[0][0] + 1, gaps[0][1]))
    assert left_out == f"[vinedresser: {missing} bytes omitted]"
    assert 60_000 < len("\n".join(end)) <= 65_536
    assert problems == []


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    problems: list[str] = []
    log = OutputLog(tmp_path / "no such directory", "log.txt", problems.append)
    log.write(["a"])
    log.write(["b"])
    log.close()
    assert len(problems) == 1
    assert "log.txt: No such file or directory" in problems[0]


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    problems: list[str] = []
    with small_disk(tmp_path, 64 << 10) as folder:
        log = OutputLog(folder, "log.txt", problems.append)
        for _ in range(3):
            log.write(["x" * 1000] * 100)
        log.close()
    assert len(problems) == 1
    assert re.search(r"log\.txt: (No space left on device|File too large)", problems[0])


def test_a_fifo_in_place_of_the_log_is_reported_and_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.txt")
    reports: list[str] = []
    log = OutputLog(tmp_path, "log.txt", reports.append)
    log.write(["a line"])
    log.close()
    assert reports == [f"{tmp_path}/log.txt: a FIFO, not a file; output is not logged"]
