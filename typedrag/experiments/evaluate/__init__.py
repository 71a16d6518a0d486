"""Running programs over a dataset into a folder: what is answered, scored and kept."""
