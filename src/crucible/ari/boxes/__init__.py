"""Boxes: where the code of an agent runs, and which limits are really in force there."""
