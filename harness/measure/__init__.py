"""Measuring on ranks: step times and memory."""
