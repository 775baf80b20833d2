"""The command line: one file per noun. The only package that prints or exits; it computes nothing itself."""
