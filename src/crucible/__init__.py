"""Machine-learning results nobody can fool themselves with: see README.md for the map; importing this loads nothing."""

__version__ = "0.1.0"
