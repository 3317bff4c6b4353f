"""What outputs are called on disk."""

import errno
import os
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


def check_folder(wanted: Path) -> None:
    """Raises OSError if nothing can be written where outputs are to go: better known before the work than after it."""
    folder = wanted if wanted.is_dir() else wanted.parent
    # Folders that are missing are made when there is something to write.
    folder = next(each for each in (folder, *folder.parents) if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        code = errno.EACCES if folder.is_dir() else errno.ENOTDIR
        raise OSError(code, os.strerror(code), str(folder))
