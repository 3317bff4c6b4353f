"""The pure scheduler: no I/O, no clock, no environment, no logging, standard library only."""
