"""Topology: detected from what the machine really says."""
