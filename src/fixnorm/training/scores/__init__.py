"""Scores of dense prediction over a whole validation set, every image once over all processes."""
