"""The Load Distributor: which publisher of a topic sends to which broker."""
