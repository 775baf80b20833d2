"""Reports of the improvement loop: what came out of a run, a sweep or a mining -> an outline of answer, pictures and tables."""
