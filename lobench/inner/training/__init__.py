"""The inner training program: one compiled loop."""
