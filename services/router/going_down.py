"""What a client is told while its router goes down."""

from triptych.errors import Reason, TriptychError


def going_down() -> TriptychError:
    """DRAINING: another router will answer, this one started anew if there is no other."""
    return TriptychError(Reason.DRAINING, "The router is going down; another will answer.", retry_after_s=1.0)
