"""Charts: curves, bars, heat maps, films."""
