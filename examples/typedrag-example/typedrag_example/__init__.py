"""What a package adds to typedrag, one file each."""
