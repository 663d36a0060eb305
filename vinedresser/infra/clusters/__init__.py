"""Clusters: Dask and Ray, through Prefect task runners."""
