"""One router leads; the others answer reads and send the rest on."""
