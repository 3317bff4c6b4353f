"""The way to the other routers."""

import pytest

from services.router.leadership.peer_links import PeerLinks
from triptych.errors import Reason, TriptychError
from triptych.rpc import Credentials


async def test_who_still_wants_a_router_as_this_one_goes_down_is_told_so() -> None:
    links = PeerLinks(Credentials())
    channel = links.channel("127.0.0.1:1")
    assert links.channel("127.0.0.1:1") is channel
    await links.close()
    with pytest.raises(TriptychError) as caught:
        links.channel("127.0.0.1:1")
    assert caught.value.reason is Reason.DRAINING
