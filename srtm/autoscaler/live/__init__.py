"""Autoscaling of groups that run: what is seen of them, and what is done with them."""
