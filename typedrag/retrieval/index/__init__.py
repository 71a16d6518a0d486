"""Making an index out of files, and what an index holds."""
