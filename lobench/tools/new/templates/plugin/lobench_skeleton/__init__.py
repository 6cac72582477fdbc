"""A plugin of lobench: `plugin` declares what it adds, other modules hold that."""
