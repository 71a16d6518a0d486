"""Files: read as text, written whole or not at all, and locked."""
