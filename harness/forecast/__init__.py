"""What every legal layout would do on a cluster: memory, traffic, checkpoint and time, before anything runs."""
