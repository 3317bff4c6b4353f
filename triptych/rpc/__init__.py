"""gRPC as every service and client of Triptych uses it."""

from triptych.rpc.channel import open_channel
from triptych.rpc.server import RpcServer

__all__ = ["RpcServer", "open_channel"]
