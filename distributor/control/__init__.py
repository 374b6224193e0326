"""The service while it leads: its state, leases, and the placements and fittings in force."""
