"""Sweeps: plan, next launches, drive, resume."""
