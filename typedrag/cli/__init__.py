"""The command line: one file for each command, which parses, calls one function and renders."""
