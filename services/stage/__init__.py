"""What the three stage workers share: one stage of a pipeline in memory, a device thread, a heartbeat, a tidy end."""

import os

# Read by OpenMP when torch is first imported: threads that wait for work sleep, instead of spinning on a core that a
# worker beside this one could use (docs/decisions/0006-threads.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
