"""The report of a run in which a rank failed shows the last output of all ranks."""

from __future__ import annotations

from pathlib import Path

from tests.explain.reports.pages import make_run, train
from vinedresser.explain.reports.report import write_report
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ExitRecord, LaunchRecord, rank_log_key, write_record


def test_the_last_lines_of_all_ranks_stand_side_by_side(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [train(0)])
    storage = LocalStorage(tmp_path / "run")
    write_record(storage, LaunchRecord(["python", "train.py"], "/", ranks=2))
    lines = "".join(f"line {number}\n" for number in range(100))
    storage.put(rank_log_key(0), [f"{lines}Connection closed by peer".encode()])
    storage.put(
        rank_log_key(1), [b"https://me:hunter22@host <b>\x1b[1m\nValueError: no such label\n"]
    )
    reason = "rank 1 after step 0: ValueError: no such label"
    write_record(storage, ExitRecord("crashed", reason, 1.0, code=1, last_step=0, rank=1))
    page = write_report(open_run(tmp_path / "run"), tmp_path / "report.html").read_text()
    section = page.partition('<section id="ranks">')[2].partition("</section>")[0]
    first, second = section.split("</figure>")[:2]
    assert "<b>rank 1</b>" in first
    assert "failed first" in first
    assert "ValueError: no such label" in first
    assert "hunter22" not in section
    assert "&lt;b&gt;\\x1b[1m" in first
    assert "<b>rank 0</b>" in second
    assert "line 99\nConnection closed by peer" in second
    assert "line 70\n" not in second
    assert reason in page
