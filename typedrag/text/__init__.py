"""Features of a text, found without an LM: its words, sentences, language, repetitions and citations."""
