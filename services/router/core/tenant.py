"""What the scheduler keeps of a tenant with accepted jobs."""

from services.router.core.ledger import Ledger
from services.router.core.peers import PeerKey, Peers, peer_key
from services.router.core.record import JobRecord, Seconds


class Tenant:
    """How many jobs it has, and for fair ranks its unrun seconds in their order and its jobs that are much the same."""

    __slots__ = ("_fair", "job_count", "ledger", "peers")

    def __init__(self, fair: bool) -> None:
        self._fair = fair
        self.job_count = 0
        self.ledger = Ledger(width=1)
        self.peers: dict[PeerKey, Peers] = {}

    def add(self, job: JobRecord) -> None:
        self.job_count += 1
        if self._fair:
            key = peer_key(job.request)
            peers = self.peers.get(key)
            if peers is None:
                peers = self.peers[key] = Peers()
            peers.add(job.request.seconds.total_s, job.rank)

    def reckon(self, job: JobRecord, unrun: Seconds) -> None:
        """Write the job's unrun seconds anew."""
        if self._fair:
            self.ledger.put(job.key, (sum(unrun),))

    def remove(self, job: JobRecord) -> None:
        self.job_count -= 1
        if self._fair:
            self.ledger.remove(job.key)
            key = peer_key(job.request)
            peers = self.peers[key]
            peers.remove(job.request.seconds.total_s, job.rank)
            if not peers:
                del self.peers[key]
