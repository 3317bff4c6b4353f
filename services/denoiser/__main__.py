"""Run a denoiser: `python -m services.denoiser --help`."""

from services.denoiser.config import DenoiserConfig
from services.denoiser.server import DenoiserServer
from services.stage.worker import main
from triptych.v1.job_pb2 import STAGE_DENOISE

if __name__ == "__main__":
    main(DenoiserConfig, STAGE_DENOISE, DenoiserServer)
