"""The tables and figures of the papers: made again, beside what was published."""
