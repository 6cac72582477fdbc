"""A plugin of lobench. `plugin` declares its contributions, which are in the other modules."""
