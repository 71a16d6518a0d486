"""Collections of a Milvus server that hold an index: built, and searched as any other retriever."""
