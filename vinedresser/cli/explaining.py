"""`vinedresser explain`: where a model looks, in requests of an alert or in examples of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import leave, run_flow
from vinedresser.errors import ConfigError


def explain(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN", help="A monitor.toml; or a run directory or s3://bucket/prefix."
        ),
    ],
    *,
    window: Annotated[
        int | None,
        typer.Option(help="With FILE: number of a window (default: that of the last alert)."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="With RUN: function that returns the torch model, with any weights "
            "(default: explain the loss by captured terms).",
        ),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With RUN: .html file (default: RUN-explain.html)."),
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="With RUN: also upload the page to its MLflow run.")
    ] = False,
) -> None:
    """Show where a model looks: in the requests of an alert, or in a run's wrong predictions.

    Of a monitor.toml, computes saliency maps of the requests of the window beside the baseline, and
    shows them in MLflow. Of a run, writes a page of the predictions that are wrong, or the least
    confident ones, by true and predicted class.
    """
    if target.endswith(".toml") or Path(target).is_file():
        if model is not None or draw is not None or log:
            raise ConfigError(f"{target}: --model, --draw and --log are for runs")
        _explain_window(Path(target), window)
        return
    if window is not None:
        raise ConfigError(f"{target}: --window is for a monitor.toml, and this is a run")
    from vinedresser.cli.views.pictures import draw_explanation, log_page
    from vinedresser.store.reading.reader import open_run

    page = draw_explanation(open_run(target), draw, model=model)
    if log:
        log_page(target, page)


def _explain_window(file: Path, window: int | None) -> None:
    from vinedresser.cli.views.console import console, relative, say
    from vinedresser.infra.catalog.stores import ensure_store
    from vinedresser.infra.services.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.monitor_file import load_monitor

    checked = load_monitor(file)
    ensure_store(checked.state)
    say("starting Prefect and MLflow ...")
    prefect_serves = prepare_prefect(checked.state)
    from vinedresser.flows.explain import explain as explain_flow
    from vinedresser.flows.explain import explain_alert

    prefect_serves()
    work = partial(explain_alert, checked, window=window)
    ended = run_flow(explain_flow, work, {"path": checked.path, "window": window}, checked.state)
    found = ended.result
    assert found is not None, "only alerts of an automation wait for others"
    console.print(
        f"{checked.name}, window {found.record.window}: {found.record.text}", soft_wrap=True
    )
    console.print(f"report {relative(found.page)}   mlflow {found.record.run_id}", soft_wrap=True)
    leave(0, ended)
