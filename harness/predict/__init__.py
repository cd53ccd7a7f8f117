"""Memory, traffic, checkpoint bytes and step time from shapes and links alone; no torch but in ``trace``."""
