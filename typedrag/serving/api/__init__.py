"""The paths of the server, a file a group of them."""
