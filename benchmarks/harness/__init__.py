"""What every benchmark uses: sessions, bars, reports, the machine, load generators."""
