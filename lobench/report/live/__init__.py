"""Live lines and displays of what runs."""
