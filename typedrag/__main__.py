"""`python -m typedrag` is `typedrag`."""

from typedrag.cli.main import main

main()
