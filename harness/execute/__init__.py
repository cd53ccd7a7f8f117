"""Execution: jobs on this host or through Slurm, and what their ends mean."""
