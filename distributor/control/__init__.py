"""The service while it leads: what is known, leases, placements and fittings in force."""
