"""What happened: one file per stream."""
