"""What runs beside the trainings of a flow: MLflow, Prefect, S3 servers and clusters."""
