"""gRPC as every service and client of Triptych uses it."""

from triptych.rpc.channel import Credentials, open_channel
from triptych.rpc.reachable import reachable_address
from triptych.rpc.server import RpcServer

__all__ = ["Credentials", "RpcServer", "open_channel", "reachable_address"]
