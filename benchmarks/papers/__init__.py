"""Every table, figure and headline of the five papers, beside what is kept of ours."""
