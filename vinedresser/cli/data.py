"""`vinedresser data`: convert, show and measure training data."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["convert_data", "data", "show_record"]

data = typer.Typer(
    help="Convert, show and measure training data.", no_args_is_help=True, rich_markup_mode=None
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
