"""flax msgpack and orbax checkpoints for lobench."""
