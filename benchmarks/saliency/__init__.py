"""Cost and completeness of saliency maps."""
