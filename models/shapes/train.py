"""Trains `shapes`, the embedded model, from nothing but drawings that it makes.

    train.py vae|unet|decoder|tiny|export|all

Every stage saves its state in the work folder every few minutes and resumes from it.
"""

import argparse
import os
from pathlib import Path

import torch
from architecture import save_checkpoint
from autoencoder import load_tiny, load_vae, train_decoder, train_tiny, train_vae
from denoiser import load_denoiser, train_denoiser

_MINUTES = {"vae": 14.0, "unet": 57.0, "decoder": 5.0, "tiny": 4.0}
_TRAINING = {"vae": train_vae, "unet": train_denoiser, "decoder": train_decoder, "tiny": train_tiny}


def main() -> None:
    """Runs one stage, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=[*_TRAINING, "export", "all"])
    parser.add_argument("--minutes", type=float, help=f"time of the stage, pauses apart (default: {_MINUTES})")
    parser.add_argument("--work", type=Path, default=Path(".train"), help="folder of the saved states")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where the checkpoint goes")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for stage in [*_TRAINING, "export"] if arguments.stage == "all" else [arguments.stage]:
        run_stage(stage, arguments.work, arguments.out, arguments.minutes or _MINUTES.get(stage, 0.0))


def run_stage(stage: str, work: Path, out: Path, minutes: float) -> None:
    """Runs one stage for so many minutes."""
    if stage in _TRAINING:
        _TRAINING[stage](work, minutes)
    else:
        export(work, out)


def export(work: Path, out: Path) -> None:
    """Writes `checkpoint` and `tiny_decoder` in half precision from the last saves of all stages."""
    denoiser, tokenizer = load_denoiser(work)
    parts = load_vae(work), denoiser.unet, denoiser.text_encoder, denoiser.text_encoder_2
    save_checkpoint(out / "checkpoint", *parts, tokenizer)
    load_tiny(work).to(torch.float16).save_pretrained(out / "tiny_decoder")


if __name__ == "__main__":
    main()
