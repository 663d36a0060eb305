"""The lifecycle of a run, the same for experiments, sweeps and scripts.

    prepare     `prepare`        its directory, its place, its MLflow run
    supervise   `supervision`    launch, judge, record and compare it; then settle it
    settle      `settle`         its end, its report, its status in MLflow
    report      `run_result`     its result for tables and summaries

`run_queue` takes many runs through it, a limited number at a time; `worker_run` takes one through
it on a worker of a cluster; `earlier_runs` ends the runs that a killed process left behind.
"""
