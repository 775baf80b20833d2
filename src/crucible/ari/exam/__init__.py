"""The exam: questions, their files, and the generators that build them from a secret seed."""
