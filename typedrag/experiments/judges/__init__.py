"""Check judges: their agreement with labels that people gave, dataset by dataset."""
