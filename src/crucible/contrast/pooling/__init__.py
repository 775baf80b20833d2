"""Pools of bundles: which a bundle is in, merging, splitting, filtering, counting."""
