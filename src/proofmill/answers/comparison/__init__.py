"""Compare two answers that have been read: values, words, sets of numbers, relations, letters for any number."""
