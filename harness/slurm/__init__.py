"""Slurm: site profiles, the text of a job, what the scheduler says of it. Nothing here starts a rank."""
