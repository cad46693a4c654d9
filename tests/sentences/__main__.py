"""`python -m tests.sentences` writes the list."""

from tests.sentences.collect import LIST, sentences

LIST.write_text(sentences(), encoding="utf-8")
