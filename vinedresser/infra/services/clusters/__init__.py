"""Clusters: Dask and Ray, through Prefect's task runners."""
