"""Run an encoder: `python -m services.encoder --help`."""

from services.encoder.config import EncoderConfig
from services.encoder.server import EncoderServer
from services.stage.worker import main
from triptych.v1.job_pb2 import STAGE_ENCODE

if __name__ == "__main__":
    main(EncoderConfig, STAGE_ENCODE, EncoderServer)
