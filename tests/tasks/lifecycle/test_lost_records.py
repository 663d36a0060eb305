"""Records lost to a full disk are reported wherever people look at the run."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from vinedresser.cli.views.console import PlainConsole
from vinedresser.cli.views.results import print_result, results_table
from vinedresser.explain.reports.report import write_report
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ExitRecord, read_record
from vinedresser.store.writing.writer import RunWriter
from vinedresser.tasks.lifecycle.end_tags import end_tags
from vinedresser.tasks.lifecycle.run_result import run_result
from vinedresser.testing.runs import end_run, start_run, step_record
from vinedresser.testing.small_disk import small_disk


def test_lost_records_are_in_the_table_the_summary_the_report_and_mlflow(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with small_disk(folder, 512 << 10):
        start_run(folder)
        storage = LocalStorage(folder)
        writer = RunWriter(storage)
        for step in range(10):
            tensors = {"weights/large": np.ones(1 << 20, np.uint8)} if step >= 3 else {}
            writer.add(step_record(step, scalars={"losses/loss": 0.04}, tensors=tensors))
            writer.flush()
        writer.close()
        end_run(folder)
        run = open_run(folder)
        assert run.steps().tolist() == [0, 1, 2]
        result = run_result(folder)
        exited = read_record(storage, ExitRecord)
        assert exited is not None
        assert end_tags(run, exited)["records.lost"] == 7
        page = write_report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    output = io.StringIO()
    console = PlainConsole(file=output, width=200)
    console.print(results_table([result]))
    print_result(result, to=console)
    table, summary = output.getvalue().split(f"{folder.name}   step")
    assert "7 records lost (queue or disk full)" in table
    assert "7 records lost (queue or disk full)" in summary
    head = page.partition('id="findings"')[0]
    assert "<dt>Records lost</dt>" in head
    assert "rank 0: 7 step records lost (queue or disk full)" in head
