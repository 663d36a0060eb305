"""Examples with their saliency: those of a run, and the requests of a service."""
