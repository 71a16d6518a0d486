"""A compiled program behind HTTP and MCP, for strangers' questions."""
