"""Charts of the improvement loop: pools, truths, margins, steps and mining, in the look of `charts.py`."""
