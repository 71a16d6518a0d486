"""The paths of the server, one file for each group."""
