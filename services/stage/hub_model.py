"""Brings what a stage loads of a hub id into the hub's cache, beside the device's work: then it is a folder."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import get_cached_repo_tree, snapshot_download
from huggingface_hub.errors import CachedRepoTreeNotFoundError

from services.stage.component_files import SMALL, is_module
from services.stage.folder_check import loaded_weights, names_in, variant_of


class HubModel:
    """One revision of a hub id. Methods block; they raise what the hub's library raises."""

    def __init__(self, hub_id: str, revision: str | None) -> None:
        self.hub_id = hub_id
        self._revision = revision

    def fetch_configs(self) -> Path:
        """Its folder in the cache, with everything but weights; the folder's name is the commit."""
        patterns = [f"*{ending}" for ending in SMALL]
        return Path(snapshot_download(self.hub_id, revision=self._revision, allow_patterns=patterns))

    def fetch_weights(self, folder: Path, specs: Iterable[Any], variant: str | None) -> None:
        """Bring the weights of these components there, of one variant. Raises `Unsound` too."""
        files: list[str] = []
        listed = self._list(folder)
        for spec in specs:
            if is_module(spec) and spec.pretrained_model_name_or_path in (str(folder), self.hub_id):
                files += self._weights(folder, spec, listed, variant or spec.variant)
        if files:
            snapshot_download(self.hub_id, revision=folder.name, allow_patterns=files)

    def _weights(self, folder: Path, spec: Any, listed: set[str] | None, variant: str | None) -> list[str]:
        prefix = f"{spec.subfolder}/" if spec.subfolder else ""
        names = names_in(folder, spec)
        if listed is not None:
            names = {name.removeprefix(prefix) for name in listed if name.startswith(prefix)}
        found = loaded_weights(folder, spec, names, variant_of(spec, names, variant))
        return [prefix + name for name in found]

    def _list(self, folder: Path) -> set[str] | None:
        """The files that the hub has; None if it was away: then those in the cache must do."""
        try:
            return {file.path for file in get_cached_repo_tree(self.hub_id, revision=folder.name)}
        except CachedRepoTreeNotFoundError:
            return None
