"""MLflow: runs, registered programs and how they are served."""
