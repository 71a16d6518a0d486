"""The words that all parts share: errors, records, events, question types, and the registry of extensions."""
