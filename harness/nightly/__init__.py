"""Nightly sweeps: a named suite, the verdict against its baseline and the weeks before, old logs thrown away."""
