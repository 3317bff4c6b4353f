"""The simulator: the router's own scheduler on a virtual clock, with modelled workers."""
