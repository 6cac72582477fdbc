"""Live output: progress displays and lines while something runs."""
