"""Bundle file -> Record: evaluation of contrastive embedding models. Read evaluate.py first."""
