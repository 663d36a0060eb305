"""Looking closely at what is left: the report of a run; later saliency and drift."""
