"""Opens a model's checkpoint: a folder as it is, a hub id once its files are in the hub's cache."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from services.stage.checkpoint import Checkpoint
from services.stage.hub_model import HubModel
from triptych.catalog import CatalogModel


def open_checkpoint(
    name: str, place: str, entry: CatalogModel, blocks: Callable[[Checkpoint], list[str]]
) -> Checkpoint:
    """The checkpoint, with all there and whole; of a hub id all that these blocks load.

    Blocks, for as long as the hub takes. Raises `CheckpointError`, `Unsound`, and whatever the hub's library raises.
    """
    checkpoint = Checkpoint(name, place, frozenset(entry.withdrawn_inputs), entry.variant)
    if Path(place).is_dir():
        checkpoint.check(checkpoint.blocks)
        return checkpoint
    hub = HubModel(place, entry.revision)
    folder = hub.fetch_configs()
    checkpoint = replace(checkpoint, place=str(folder), origin=f"{place}@{folder.name}")
    loaded = {part for block in blocks(checkpoint) for part in checkpoint.loaded_by(block)}
    specs = checkpoint.stored(checkpoint.pipeline)
    hub.fetch_weights(folder, [specs[part] for part in specs if part in loaded], entry.variant)
    # Read anew: an index that names the hub names the folder for what is there.
    checkpoint = replace(checkpoint)
    checkpoint.check(blocks(checkpoint))
    return checkpoint
