"""How good are the judges? Their agreement with labels that people gave, dataset by dataset."""
