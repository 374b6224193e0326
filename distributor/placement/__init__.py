"""Which publisher sends to which broker: pure functions, no clock, no I/O."""
