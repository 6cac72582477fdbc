"""What notebooks show of a value: HTML tables, and curves on matplotlib's axes. Numbers come in; none is made here."""
