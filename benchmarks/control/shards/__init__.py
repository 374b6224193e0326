"""Several leaders on one store, simulated: what is shared holds, at what cost, at what size."""
