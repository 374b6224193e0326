"""Brokers that are started where publishers have none, and end once nobody needs them."""
