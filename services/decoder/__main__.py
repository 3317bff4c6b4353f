"""Run a decoder: `python -m services.decoder --help`."""

from services.decoder.config import DecoderConfig
from services.decoder.server import DecoderServer
from services.stage.worker import main
from triptych.v1.job_pb2 import STAGE_DECODE

if __name__ == "__main__":
    main(DecoderConfig, STAGE_DECODE, DecoderServer)
