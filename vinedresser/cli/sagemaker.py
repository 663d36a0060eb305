"""`vinedresser sagemaker`: the entry point of a training container of SageMaker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.options import (
    CollectionOption,
    PresetOption,
    RuleOption,
    selected_rules,
    tables,
)
from vinedresser.cli.running import UNASKED, MetricOption, code_of, metrics_of, supervised
from vinedresser.errors import ConfigError, VinedresserError

# SageMaker kills a container two minutes after SIGTERM.
_GRACE = 100.0


def sagemaker(
    job: Annotated[
        str, typer.Argument(metavar="train", help="The argument that SageMaker adds.")
    ] = "train",
    *,
    store: Annotated[
        str | None,
        typer.Option(
            help="Directory of the runs or s3://bucket/prefix (default: vinedresser in the folder "
            "of checkpoints, if there is one, else in that of the output).",
        ),
    ] = None,
    preset: PresetOption = None,
    rule: RuleOption = None,
    collection: CollectionOption = None,
    metric: MetricOption = None,
) -> None:
    """Run the script of a SageMaker training job under supervision, inside its container.

    The tree is that at SAGEMAKER_BASE_DIR (default: /opt/ml). Output and exit code are those of the
    script; the exit code is 3 if a rule stopped it. The reason of a failure is in output/failure.
    """
    from vinedresser.infra.supervise.sagemaker import hyperparameters_as_options, read_container
    from vinedresser.tasks.lifecycle.container_job import (
        default_store,
        enter,
        job_name,
        own_run,
        program,
        tell,
    )
    from vinedresser.tasks.lifecycle.run_script import Script

    if job != "train":
        raise ConfigError(f"{job}: only training is supported, for which SageMaker adds `train`")
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    try:
        container = read_container(base, os.environ)
        script = Script(
            [*program(container), *hyperparameters_as_options(container.hyperparameters)],
            selected_rules(preset or (None if rule else UNASKED), rule),
            tables("--collection", collection),
            parameters=container.hyperparameters,
            environment=own_run(container),
            grace=_GRACE,
            metrics=metrics_of(metric),
        )
        enter(container)
        ended = supervised(script, store or default_store(base), None, stem=job_name(container))
    except VinedresserError as error:
        tell(base, str(error))
        raise
    code = code_of(ended)
    if code:
        tell(base, ended.record.reason)
    sys.exit(code)
