"""The places where a run's questions are answered and measured: in this process, or by the workers of a Ray cluster."""
