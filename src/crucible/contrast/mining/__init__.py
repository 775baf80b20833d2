"""Candidates x line-ups -> organic tier-3 bundles; read mine.py first."""
