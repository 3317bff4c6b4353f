"""A router's service that answers at once, with nothing."""

from collections.abc import AsyncGenerator

from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.router_service_pb2_grpc import RouterServiceServicer

SERVICE = "triptych.v1.RouterService"


class Answering(RouterServiceServicer):
    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        return pb.SubmitJobResponse()

    async def GenerateMedia(
        self, request: pb.GenerateMediaRequest, context: Context
    ) -> AsyncGenerator[pb.GenerateMediaResponse, None]:
        yield pb.GenerateMediaResponse()
