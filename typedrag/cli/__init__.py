"""The command line: one command a file; each parses, calls one function, renders."""
