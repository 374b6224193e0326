"""What a policy makes of recorded arrivals, exactly, by the reports and leases of live brokers."""
