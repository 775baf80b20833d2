"""Agents: who is being measured, as a command that runs in the controller."""
