"""Retrievers over an index: BM25, dense, hybrid."""
