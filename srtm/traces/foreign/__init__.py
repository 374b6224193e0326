"""Other people's arrivals, made a trace."""
