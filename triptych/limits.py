"""What no job may go beyond, whatever its catalog entry allows: for clients, the router and the workers."""

MAX_OUTPUTS = 4
MAX_STEPS = 1000
# Pixels.
MAX_SIDE = 16384
# Each output has a seed of its own, counted on from the job's.
MAX_SEED = 2**63 - 1 - MAX_OUTPUTS
# All of a job together.
MAX_ATTACHMENT_BYTES = 3 * 1024 * 1024
