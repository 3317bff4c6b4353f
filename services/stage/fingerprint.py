"""The hash of all that is loaded of a checkpoint and shapes a result: equal on two hosts that have the same model.

Other files in its folder do not count, nor do times, links and paths: a hub's metadata, a readme, another variant.
"""

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

from services.stage.component_files import config_names, is_module
from services.stage.folder_check import loaded_weights, names_in

# Samples are read of a larger file: two fine-tunes differ in them, without gigabytes being read. The first has the
# header.
_WHOLE_BYTES = 64 << 20
_SAMPLE_BYTES = 64 * 1024
_SAMPLE_COUNT = 64


def folder_fingerprint(folder: Path, pipeline: Any, components: dict[str, Any]) -> str:
    """Of a pipeline whose components lie in a folder. Raises `Unsound` for weights whose shards are not told.

    Files count whole; very large ones by size, header and samples. What another model of the hub lends counts by name.
    """
    digest = blake2b(digest_size=16)
    _feed(digest, type(pipeline).__name__, {name: pipeline.config.get(name) for name in pipeline._config_specs})
    for name, spec in sorted(components.items()):
        place = Path(spec.pretrained_model_name_or_path)
        # A folder has another path on another host.
        lender = "" if place.is_absolute() else str(place)
        _feed(digest, name, getattr(spec.type_hint, "__name__", None), lender, lender and spec.revision)
        if place == folder:
            _feed_files(digest, folder / (spec.subfolder or ""), _loaded_files(folder, spec))
    return digest.hexdigest()


def _loaded_files(folder: Path, spec: Any) -> list[str]:
    names = names_in(folder, spec) if (folder / (spec.subfolder or "")).is_dir() else set()
    weights = loaded_weights(folder, spec, names, spec.variant) if is_module(spec) else []
    return [*config_names(spec, names), *weights]


def _feed_files(digest: Any, folder: Path, names: list[str]) -> None:
    for name in names:
        size = (folder / name).stat().st_size
        _feed(digest, name, size)
        with (folder / name).open("rb") as file:
            if size <= _WHOLE_BYTES:
                digest.update(file.read())
                continue
            for index in range(_SAMPLE_COUNT):
                file.seek((size - _SAMPLE_BYTES) * index // (_SAMPLE_COUNT - 1), os.SEEK_SET)
                digest.update(file.read(_SAMPLE_BYTES))


def _feed(digest: Any, *facts: Any) -> None:
    digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
