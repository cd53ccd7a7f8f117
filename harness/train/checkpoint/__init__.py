"""Checkpoints on ranks: ways to save and to restore a session, and what they cost."""
