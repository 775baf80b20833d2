"""Rows and reports -> what people read: HTML from one set of templates. Measures nothing and writes no file."""
