"""`python -m crucible` -> the same command as `crucible`."""

from crucible.cli.main import main

main()
