"""`vinedresser data`: convert, feed, show and measure training data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from vinedresser.cli.options import check_number
from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["bench_data", "convert_data", "data", "feed_data", "show_record"]

data = typer.Typer(
    help="Convert, feed, show and measure training data.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of the data: tfrecord, length_prefixed, tar, jsonl, npy, safetensors, "
        "parquet, or files (each file is one record); default: by the ending of the first file.",
    ),
]
_SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="File, folder, glob or manifest, or s3://bucket/prefix/."
    ),
]


@data.command("convert")
def convert_data(
    source: _SourceArgument,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="New directory or s3://bucket/prefix.")
    ],
    *,
    kind: _FormatOption = None,
    class_field: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="FIELD",
            help="Write each class into a directory of its own; FIELD has a record's class, "
            "that of files is the field folder.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Column of Parquet to convert; repeatable."),
    ] = None,
    part_mb: Annotated[int, typer.Option(min=1, help="Maximum size of a part in MiB.")] = 64,
) -> None:
    """Convert data to sharded TFRecords.

    Records with fields, such as rows of Parquet or files of a tar archive, become
    tf.train.Example. Running it again after an interruption resumes.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.cli.views.data_records import counted
    from vinedresser.data.converting import convert

    with counted("records") as progress:
        done = convert(
            source,
            target,
            format=kind,
            columns=column or None,
            class_field=class_field,
            part_bytes=part_mb << 20,
            progress=progress,
        )
    kept = f", {done.kept} already complete" if done.kept else ""
    say(
        f"{target}   {sum(done.records.values())} records   {done.size / 1e6:.1f} MB   "
        f"{len(done.records)} parts{kept}"
    )


@data.command("feed")
def feed_data(
    source: _SourceArgument,
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="Directory and channel; epoch 0 is the pipe PATH_0."),
    ],
    *,
    kind: _FormatOption = None,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="Number of the first epoch.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Shuffle the files of each epoch by this seed.")
    ] = None,
) -> None:
    """Feed data into pipes, as SageMaker's Pipe mode does.

    Waits for a reader of each epoch. An epoch whose reader goes away is fed again.
    """
    from vinedresser.data.pipes import feed_pipe

    feed_pipe(source, path, format=kind, epochs=epochs, first=first, seed=seed)


@data.command("show")
def show_record(
    place: Annotated[
        str,
        typer.Argument(
            metavar="URI:OFFSET|URI#RECORD",
            help="A record by its byte offset, as in messages, or by its number, from 0.",
        ),
    ],
    *,
    kind: _FormatOption = None,
) -> None:
    """Show one record of training data."""
    from vinedresser.cli.views.data_records import print_record
    from vinedresser.data.locating import find_record

    print_record(find_record(place, format=kind))


@data.command("bench")
def bench_data(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE|FILE",
            help="File, folder, glob, manifest, s3://bucket/prefix/, or a .toml file with [data].",
        ),
    ],
    *,
    kind: _FormatOption = None,
    channel: Annotated[
        str, typer.Option(metavar="NAME", help="Channel of the .toml file.")
    ] = "train",
    decode: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Decoder of the training, called with each value."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Records per batch.")] = 256,
    seconds: Annotated[
        float,
        typer.Option(callback=check_number, help="Duration of each measurement."),
    ] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each way.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    target: Annotated[
        Path | None, typer.Option("--draw", metavar="FILE", help="Draw it: .svg or .html.")
    ] = None,
) -> None:
    """Measure how fast data is read on this machine.

    Compares plain reading, whole objects, and data sets of several settings, by throughput, gaps
    between batches and the share of each stage, and proposes settings.
    """
    from vinedresser.cli.views.data_records import counted, print_benchmark
    from vinedresser.data.benchmark import measure_reading

    sources = _channel(Path(source), channel) if source.endswith(".toml") else [source]
    if target is not None:
        from vinedresser.explain.charts.plot import check_target

        check_target(target)
    with counted("measurements") as progress:
        found = measure_reading(
            sources,
            format=kind,
            decode=None if decode is None else _decoder(decode),
            batch_size=batch_size,
            seconds=seconds,
            rounds=rounds,
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        print_benchmark(found)
    if target is not None:
        from vinedresser.explain.reading_plot import plot_reading

        plot_reading(found).save(target)


def _decoder(reference: str) -> Callable[[Any], Any]:
    """Return the function that ``--decode`` names."""
    from vinedresser.infra.entry import function_here, is_reference

    if not is_reference(reference):
        raise ConfigError(f"--decode: must be MODULE:FUNCTION, not {reference!r}")
    return function_here(reference)


def _channel(path: Path, name: str) -> list[str]:
    """Return the sources of a channel of a file."""
    from vinedresser.infra.configuration import load_toml
    from vinedresser.tasks.config.data_table import checked_channels

    table = load_toml(path).get("data", {})
    channels = checked_channels(table, path.absolute().parent, f"{path}: data")
    if name not in channels:
        near = did_you_mean(name, channels) or f"; its channels: {', '.join(channels) or 'none'}"
        raise ConfigError(f"{path}: data: no channel {name!r}{near}")
    return channels[name]
