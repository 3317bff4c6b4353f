"""What outputs are called on disk."""

from pathlib import Path

from triptych.client import Media


def output_path(wanted: Path | None, job_id: str, media: Media, output_count: int) -> Path:
    """`name.png`, or `name-0.png`, `name-1.png`, … when the job has several outputs.

    Without a wanted name it is the job's id; a folder takes a file of that name. A name without an ending gets the
    media type's.
    """
    if wanted is None or wanted.is_dir():
        wanted = (wanted or Path()) / f"{job_id}{media.suffix}"
    if not wanted.suffix:
        wanted = wanted.with_name(wanted.name + media.suffix)
    if output_count > 1:
        wanted = wanted.with_name(f"{wanted.stem}-{media.output.index}{wanted.suffix}")
    return wanted
