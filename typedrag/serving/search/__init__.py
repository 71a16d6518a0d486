"""An index behind HTTP, for programs that run where it is not."""
