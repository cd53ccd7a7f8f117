"""A Slurm cluster on one machine: nodes are network namespaces, GPUs are device files that nobody opens."""
