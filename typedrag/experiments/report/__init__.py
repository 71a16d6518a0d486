"""A run as a page that shows each question."""
