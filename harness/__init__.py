"""meshsweep: measure data-parallel layouts on the cluster at hand and choose one."""

__version__ = "0.1.0"
