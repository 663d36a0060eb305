"""The command line: arguments in, one call into the layers below, errors as one line.

Nothing heavy is imported at the top: `vinedresser --help` must answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vinedresser import __version__
from vinedresser.errors import ConfigError, VinedresserError

if TYPE_CHECKING:
    from types import FrameType

    from vinedresser.infra.run_directory import ExitRecord

__all__ = ["app", "main"]

app = typer.Typer(
    help="Training jobs that are watched, judged, stopped and recorded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory, or s3://bucket/prefix.")
]
_StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Where the runs are.")]
_RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="NAME[:KEY=VALUE,...]",
        help="Judge by this rule; may be repeated.",
    ),
]
_CollectionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--collection",
        metavar="NAME[:KEY=VALUE,...]",
        help="Capture this too; may be repeated.",
    ),
]
_DEFAULT_STORE = Path("runs")
_STOPPED_BY_RULE = 3
_NOTHING_SEEN = (
    "vinedresser: no training was seen, so nothing was captured: no Python that was started made "
    "a step of a torch optimizer, of Keras or of XGBoost (one that is started with -I, -E or -S, "
    "or without this environment, cannot be seen); else put a Hook into the script"
)


def _whole(word: str, option: str) -> int:
    """Return a word as a whole number."""
    if not word.isdecimal():
        raise ConfigError(f"{option}: {word!r} is not a step number")
    return int(word)


def main() -> None:
    """Run the command line; bad input ends with one line on stderr and exit code 2."""
    try:
        app()
    except VinedresserError as error:
        print(f"vinedresser: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"vinedresser {__version__}")
        raise typer.Exit


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="A Python script, or -m and a module, or any program, and its arguments.",
        ),
    ],
    *,
    store: Annotated[
        str, typer.Option(help="Directory that gets the run directory, or s3://bucket/prefix.")
    ] = str(_DEFAULT_STORE),
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    rule: _RuleOption = None,
    collection: _CollectionOption = None,
    attach: Annotated[
        bool, typer.Option("--attach/--no-attach", help="Capture what has no hook of its own.")
    ] = True,
    steps: Annotated[int | None, typer.Option(help="Steps of the whole run, if known.")] = None,
) -> None:
    """Run one training script, as it is, under supervision.

    What it trains is captured in STORE/NAME; its output and exit code are passed on. The exit code
    is 3 when a rule stopped it.
    """
    from vinedresser.infra.storage.locate import is_remote
    from vinedresser.tasks.run_script import (
        further_ends,
        prepare_script,
        run_name,
        run_script,
        training_seen,
    )

    prepare = partial(
        prepare_script,
        command=command,
        rules=_tables("--rule", rule),
        collections=_tables("--collection", collection),
        attach=attach,
        total_steps=steps,
    )
    if is_remote(store):
        stem = name or run_name(command)
        sys.exit(_run_remote(store, stem, prepare, numbered=name is None, attach=attach))
    directory = _free_directory(Path(store), name, run_name(command))
    prepare(directory)
    with _interrupts([directory]):
        end = run_script(directory)
    from vinedresser.tasks.outcome import outcome
    from vinedresser.terminal import error_console, print_outcome

    for one in [directory, *further_ends(directory)]:
        print_outcome(outcome(one), to=error_console)
    if attach and end.cause == "finished" and not training_seen(directory):
        error_console.print(_NOTHING_SEEN, soft_wrap=True)
    sys.exit(_exit_code(end))


@app.command()
def train(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment.toml.")],
    store: Annotated[
        Path | None, typer.Option(help="Takes the place of run.store in the file.")
    ] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="Trainings at the same time.")] = None,
) -> None:
    """Run the trainings of an experiment file.

    They run in parallel, are judged while they train, and are stopped when they go wrong.
    """
    from vinedresser.infra.prefect_environment import prepare_prefect
    from vinedresser.tasks.experiment import load_experiment

    experiment = load_experiment(file, store=store, at_once=at_once)
    experiment.store.mkdir(parents=True, exist_ok=True)
    prepare_prefect(experiment.store)
    from vinedresser.flows.train import train as train_flow
    from vinedresser.terminal import console, outcome_table, progress, relative

    count = len(experiment.plans)
    together = min(experiment.at_once, count)
    trainings = "1 training" if count == 1 else f"{count} trainings, {together} at a time"
    console.print(f"{trainings}, in {relative(experiment.store)}", soft_wrap=True)
    with progress(experiment.store), _interrupts(experiment.store):
        trained = train_flow(experiment.path, experiment.store, at_once)
    console.print(outcome_table(trained.outcomes))
    for problem in trained.problems:
        console.print(f"vinedresser: {problem}", style="red", markup=False)
    shown = relative(experiment.store)
    console.print(f"reports in {shown}/*/report.html; compare the runs: vinedresser ui {shown}")
    failed = any(entry.status.state not in ("finished", "stopped") for entry in trained.outcomes)
    sys.exit(1 if failed or trained.problems else 0)


@app.command()
def judge(
    run: _RunArgument,
    rule: _RuleOption = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop a running training when a rule says so.")
    ] = False,
) -> None:
    """Judge a run by rules, live or long after.

    All the built-in rules judge it if none is named.
    """
    from vinedresser.capture.store.reader import open_run
    from vinedresser.rules.judge import judge as judge_run
    from vinedresser.rules.registry import RULES, rules_from_table
    from vinedresser.terminal import console, print_finding

    rules = rules_from_table(_tables("--rule", rule) or {name: {} for name in RULES})
    found = judge_run(open_run(run), rules, live=stop, on_finding=print_finding)
    if not found:
        console.print(
            f"{PurePath(run).name}: no findings by {', '.join(rule.name for rule in rules)}"
        )


@app.command()
def show(
    run: _RunArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A tensor or scalar of it.")
    ] = None,
    *,
    step: Annotated[int | None, typer.Option(help="One step instead of all.")] = None,
    mode: Annotated[str, typer.Option(help="train, eval or predict.")] = "train",
    rank: Annotated[int, typer.Option(help="Of a distributed run.")] = 0,
    draw: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it into a .png or .svg file.")
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", help="What to draw: curve, histogram or images; else what fits."),
    ] = None,
) -> None:
    """Show what a run captured.

    With a NAME, the values of that tensor or scalar; with --draw, a picture of it.
    """
    from vinedresser.capture.store.reader import open_run
    from vinedresser.show import draw_name, show_name, show_run

    opened = open_run(run)
    if name is None:
        if draw is not None:
            raise ConfigError(f"--draw {draw}: say of which tensor or scalar")
        show_run(opened)
    elif draw is not None:
        draw_name(opened, name, draw, step=step, mode=mode, rank=rank, kind=as_)
    else:
        show_name(opened, name, step=step, mode=mode, rank=rank)


@app.command()
def capture(
    run: _RunArgument,
    *,
    collection: Annotated[str, typer.Option(help="Name of the collection that changes.")],
    every: Annotated[int | None, typer.Option(min=1, help="Save every so many steps.")] = None,
    start: Annotated[int, typer.Option(min=0, help="First step.")] = 0,
    stop: Annotated[int | None, typer.Option(help="First step no longer saved.")] = None,
    steps: Annotated[str, typer.Option(help="Steps saved in any case, as 10,20,30.")] = "",
    reductions: Annotated[
        str, typer.Option(help="Statistics to keep instead of the tensors, as l2,abs_mean.")
    ] = "",
    tensor: Annotated[
        bool, typer.Option("--tensor", help="Keep the tensors beside the statistics.")
    ] = False,
    regex: Annotated[str | None, typer.Option(help="Makes a collection of one's own.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Save it no longer.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the training.")] = 30.0,
) -> None:
    """Change what a running training captures, from its next step on.

    What its rules need is captured all the same.
    """
    from vinedresser.capture.collections import Collection
    from vinedresser.capture.requesting import await_change, request_capture
    from vinedresser.capture.schedule import SaveConfig
    from vinedresser.infra.storage import open_storage
    from vinedresser.terminal import console

    if off == bool(every or steps):
        raise ConfigError("capture: say when to save, with --every or --steps, or else --off")
    words = tuple(reductions.replace(",", " ").split())
    save = SaveConfig(
        every=every or 0,
        start=start,
        stop=stop,
        steps=tuple(_whole(word, "--steps") for word in steps.replace(",", " ").split()),
        reductions=words,
        tensor=True if tensor else None,
    )
    storage = open_storage(run)
    number = request_capture(storage, [Collection(collection, regex, save)])
    change = await_change(storage, number, timeout)
    if change is None:
        console.print(f"{run}: asked; the training has ended no step since", soft_wrap=True)
    elif change.refused:
        raise ConfigError(f"{run}: refused: {change.refused}")
    else:
        console.print(f"{run}: {collection} changed from step {change.step} on", soft_wrap=True)


@app.command()
def status(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="Where the runs are; also s3://bucket/prefix.")
    ] = str(_DEFAULT_STORE),
) -> None:
    """Show how the runs of a store stand."""
    from vinedresser.infra.storage.locate import is_remote
    from vinedresser.tasks.outcome import outcome
    from vinedresser.tasks.store import remote_runs
    from vinedresser.terminal import console, outcome_table

    runs = remote_runs(store) if is_remote(store) else _runs(Path(store))
    console.print(outcome_table([outcome(run) for run in runs]))


@app.command()
def reconcile(store: _StoreArgument = _DEFAULT_STORE) -> None:
    """Bring to its end what a crash left behind.

    Leftover processes, exit records, MLflow runs, Prefect flow runs, and what waits on this machine
    to be uploaded; twice changes nothing.
    """
    from vinedresser.infra.prefect_environment import prepare_prefect
    from vinedresser.tasks.flow_record import dead_flows
    from vinedresser.tasks.reconcile import reconcile as reconcile_store
    from vinedresser.tasks.reconcile import reconcile_spools
    from vinedresser.terminal import console

    results = reconcile_spools()
    if not results:
        _runs(store)
    if store.is_dir():
        if dead_flows(store):
            prepare_prefect(store)
        results += reconcile_store(store)
    for result in results:
        console.print(f"{result.what}   {result.done}", markup=False)
    if not results:
        console.print("nothing to reconcile")
    sys.exit(1 if any(result.failed for result in results) else 0)


@app.command()
def ui(
    store: _StoreArgument = _DEFAULT_STORE,
    port: Annotated[int | None, typer.Option(help="A free one if not given.")] = None,
) -> None:
    """Open MLflow's pages on the runs of a store."""
    from vinedresser.infra.guard import guard_descendants
    from vinedresser.infra.servers import mlflow_page, start_mlflow_ui, stop_server
    from vinedresser.tasks.store import tracking
    from vinedresser.terminal import console

    record = tracking(store)
    guard_descendants()
    server = start_mlflow_ui(record.uri, port=port)
    page = mlflow_page(server.url, record.experiment_id)
    console.print(f"MLflow at {page}   (Ctrl-C ends it)", soft_wrap=True)
    try:
        server.process.wait()
    except KeyboardInterrupt:
        stop_server(server)


@app.command()
def up(
    s3: Annotated[bool, typer.Option("--s3", help="An S3 server, SeaweedFS, on loopback.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of its files; one below ~/.local/share if not given."),
    ] = None,
    port: Annotated[int | None, typer.Option(help="8333, or a free one, if not given.")] = None,
    bucket: Annotated[str, typer.Option(help="A bucket that it is to have.")] = "vinedresser",
) -> None:
    """Start the local servers, which stay until `vinedresser down`.

    What programs need to find them is printed for the shell: eval "$(vinedresser up --s3)".
    """
    from vinedresser.terminal import error_console

    if not s3:
        raise ConfigError("up: say which server: --s3 starts an S3 server, SeaweedFS, on loopback")
    from vinedresser.infra.servers import bring_up

    server = bring_up(data, port=port, bucket=bucket)
    for name, value in server.environment().items():
        typer.echo(f"export {name}={value}")
    said = f"S3 at {server.url}, for stores like s3://{bucket}/runs, in {server.data}"
    error_console.print(f"{said}   (vinedresser down stops it)", soft_wrap=True)


@app.command()
def down() -> None:
    """Stop the local servers that `vinedresser up` started; what they have stored stays."""
    from vinedresser.infra.servers import take_down
    from vinedresser.terminal import console

    server = take_down()
    said = f"stopped the S3 server at {server.url}" if server else "no server runs"
    console.print(said, soft_wrap=True)


def _tables(option: str, given: list[str] | None) -> dict[str, dict[str, Any]]:
    """Read ``NAME:KEY=VALUE,...`` as it was given to an option; values are written as in TOML."""
    import tomllib

    tables: dict[str, dict[str, Any]] = {}
    for text in given or []:
        name, _, settings = text.partition(":")
        try:
            tables[name] = tomllib.loads(f"it = {{ {settings} }}")["it"]
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{option} {text}: write it as NAME:KEY=VALUE,KEY=VALUE with TOML values ({error})"
            ) from error
    return tables


def _run_remote(
    store: str, name: str, prepare: Callable[..., None], *, numbered: bool, attach: bool
) -> int:
    """Run a script whose run lies on an object store; return the exit code."""
    from vinedresser.tasks.outcome import outcome
    from vinedresser.tasks.remote_script import RemoteScript, free_url
    from vinedresser.terminal import error_console, print_outcome

    def say(sentence: str) -> None:
        error_console.print(f"vinedresser: {sentence}", soft_wrap=True, markup=False)

    url = free_url(store, name) if numbered else f"{store.rstrip('/')}/{name}"
    script = RemoteScript(url, say)
    script.prepare(partial(prepare, name=PurePath(url).name))
    with _interrupts([script.directory]):
        end = script.run()
    for one in script.uploaded:
        print_outcome(outcome(one), to=error_console)
    if attach and end.cause == "finished" and not script.seen:
        error_console.print(_NOTHING_SEEN, soft_wrap=True)
    return _exit_code(end)


def _free_directory(store: Path, name: str | None, stem: str) -> Path:
    """Return STORE/NAME, or the first free of STORE/STEM-1, -2 and so on."""
    if name is not None:
        return store / name
    number = 1
    while (store / f"{stem}-{number}").exists():
        number += 1
    return store / f"{stem}-{number}"


def _runs(store: Path) -> list[Path]:
    """Return the run directories of a store.

    Raises:
        ConfigError: there is no such directory.
    """
    from vinedresser.tasks.store import run_directories

    if not store.is_dir():
        raise ConfigError(f"{store}: no such directory; give a store or a run directory")
    return run_directories(store)


def _exit_code(end: ExitRecord) -> int:
    """Return a training's exit code, as a shell would give it: 128 + N after signal N."""
    if end.stop is not None:
        return _STOPPED_BY_RULE if end.stop["by"] == "rule" else 128 + signal.SIGINT
    if end.code is not None:
        return end.code
    return 128 + (signal.Signals[end.signal] if end.signal else signal.SIGKILL)


@contextmanager
def _interrupts(where: Path | list[Path]) -> Iterator[None]:
    """On the first Ctrl-C ask the runs to stop, with their checkpoint; on the second end now."""
    from vinedresser.infra.launcher import request_stop
    from vinedresser.tasks.store import owned_here

    def ask(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, b"vinedresser: asking the runs to stop; Ctrl-C again ends at once\n")
        for directory in where if isinstance(where, list) else owned_here(where):
            request_stop(directory, by="person", reason="interrupted at the keyboard")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
