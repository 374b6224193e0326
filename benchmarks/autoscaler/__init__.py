"""Packings and autoscaling policies, on simulated groups."""
