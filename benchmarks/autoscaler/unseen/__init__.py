"""Ours on generated workloads that none of its constants was chosen on."""
