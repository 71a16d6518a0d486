"""What is told of a text without an LM: its words, sentences, language, repetitions and citations."""
