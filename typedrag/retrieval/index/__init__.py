"""Building an index from files, and the contents of an index."""
