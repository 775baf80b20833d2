"""One encoder a file; heavy libraries are imported here and nowhere else in the contrastive half."""
