"""A finished run <-> one file that anyone can verify."""
