"""Training program: one compiled loop over inner steps, phases, saved states, replay."""
