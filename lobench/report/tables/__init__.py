"""Tables as text, LaTeX and records."""
