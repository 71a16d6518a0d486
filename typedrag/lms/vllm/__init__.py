"""LMs that vLLM serves: at addresses, by a server started here, or in this process."""
