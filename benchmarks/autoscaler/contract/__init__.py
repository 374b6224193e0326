"""The policy `contract` against the worst arrivals that a contract allows."""
