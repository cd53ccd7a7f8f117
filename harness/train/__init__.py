"""Training on ranks: the reference model, its data, one module a strategy. The only torch users, with measure/."""
