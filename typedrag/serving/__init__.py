"""Programs behind HTTP and MCP, for strangers' questions."""
