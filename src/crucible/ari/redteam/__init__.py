"""Attacks on the harness as product code: hostile bundles, and the verdict each of them must get. Run them on your machine."""
