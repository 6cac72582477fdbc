"""Tables as text, LaTeX and JSON records."""
