"""Runs on several hosts: what starts them, and the process on each that starts its ranks.

The supervisor of a run (`infra.supervise.supervisor`) starts one launcher, such as ``mpirun``,
which starts a `Host` on each host. The supervisor and the hosts share the run directory only: the
hosts report in ``hosts/<number>.json``, and are told what to do in ``host_orders.json``.
"""
