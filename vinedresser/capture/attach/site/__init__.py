"""The directory that a run puts first into PYTHONPATH; Python finds `sitecustomize` in it."""
