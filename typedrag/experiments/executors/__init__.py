"""Where the questions of a run are answered and measured: in this process, or by the workers of a Ray cluster."""
