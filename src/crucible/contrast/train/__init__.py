"""Bundles and a configuration -> a trained encoder and the evidence of how it was trained. Read `run.py` first."""
