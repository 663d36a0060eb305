"""The cluster on which an experiment trains."""

from __future__ import annotations

from contextlib import AbstractContextManager

from vinedresser.infra.clusters.cluster import Cluster, open_cluster
from vinedresser.tasks.config.experiment import Experiment

__all__ = ["cluster_of"]


def cluster_of(experiment: Experiment) -> AbstractContextManager[Cluster | None]:
    """Return a context in which an experiment's cluster is connected; None for local processes.

    Raises:
        ConfigError: the cluster's workers cannot reach Prefect's server.
        LaunchError: the cluster is away, or cannot be started.
    """
    run = experiment.run
    return open_cluster(
        experiment.runner,
        experiment.store,
        max_concurrent=experiment.max_concurrent,
        cpus=run.cpus,
        gpus=run.gpus,
    )
