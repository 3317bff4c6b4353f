"""Where a catalog's checkpoints lie."""

from pathlib import Path

import pytest

from triptych.catalog import Catalog, CatalogModel
from triptych.config import ConfigError


def place(folder: Path, checkpoint: str) -> str:
    (folder / "here" / "inside").mkdir(parents=True)
    return Catalog({"a": CatalogModel(checkpoint=checkpoint)}, folder).checkpoint("a")


@pytest.mark.parametrize("checkpoint", ["here", "here/inside", "./here"])
def test_folders_beside_the_catalog(tmp_path: Path, checkpoint: str) -> None:
    assert Path(place(tmp_path, checkpoint)) == tmp_path / checkpoint


@pytest.mark.parametrize("checkpoint", ["black-forest-labs/FLUX.1-dev", "org/model_2"])
def test_hub_ids(tmp_path: Path, checkpoint: str) -> None:
    assert place(tmp_path, checkpoint) == checkpoint


@pytest.mark.parametrize("checkpoint", ["nowhere", "./nowhere", "../no/where", "/no/where", "here/nowhere"])
def test_folders_that_are_not_there_are_named(tmp_path: Path, checkpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"models\.a\.checkpoint: there is no folder .*where"):
        place(tmp_path, checkpoint)
