"""What no job may go beyond, whatever its catalog entry allows: for clients, the router and the workers."""

MAX_OUTPUTS = 4
MAX_STEPS = 1000
# Pixels.
MAX_SIDE = 16384
# Of a video. Below the least, no animated file can hold the time that a frame is shown.
MAX_FRAMES = 10_000
MIN_FPS, MAX_FPS = 0.1, 240.0
# Of an animated PNG or WebP: browsers show a frame that is to be shown for 10 ms or less for 100 ms.
MAX_ANIMATED_FPS = 90.0
# Each output has a seed of its own, counted on from the job's.
MAX_SEED = 2**63 - 1 - MAX_OUTPUTS
# All of a job together.
MAX_ATTACHMENT_BYTES = 3 * 1024 * 1024
