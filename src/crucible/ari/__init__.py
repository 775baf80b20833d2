"""ARI Bench: an agent, a fixed budget and a hidden exam -> one Record. Read run.py first, then grade.py."""
