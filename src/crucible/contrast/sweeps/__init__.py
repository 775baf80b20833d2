"""Conditions x seeds -> runs -> one table; read sweep.py first."""
