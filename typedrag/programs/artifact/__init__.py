"""A compiled program as a folder of JSON files."""
