"""Who may make which call, and how much of the fleet each tenant may use."""
