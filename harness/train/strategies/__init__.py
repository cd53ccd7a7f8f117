"""One module a strategy; each has ``parallelize(model, context)``. The registry stands in ``harness.layout``."""
