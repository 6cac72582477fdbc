"""Charts as SVG and figures: curves, bars, heat maps, films."""
