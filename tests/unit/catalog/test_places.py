"""Where a catalog's checkpoints lie, and what it may allow."""

from pathlib import Path

import pytest

from triptych.catalog import Catalog, CatalogModel
from triptych.config import ConfigError
from triptych.limits import MAX_OUTPUTS, MAX_SIDE, MAX_STEPS


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


@pytest.mark.parametrize(
    ("limit", "most"), [("max_step_count", MAX_STEPS), ("max_side", MAX_SIDE), ("max_output_count", MAX_OUTPUTS)]
)
def test_nothing_is_allowed_that_workers_refuse(tmp_path: Path, limit: str, most: int) -> None:
    """So that no job is accepted that cannot run, and the client is told the limit that holds."""
    file = tmp_path / "models.toml"
    text = '[models.a]\ncheckpoint = "a"\n[models.a.limits]\n{} = {}\n'
    file.write_text(text.format(limit, most))
    assert getattr(Catalog.load(file).models["a"].limits, limit) == most
    for value in (most + 1, 0):
        file.write_text(text.format(limit, value))
        with pytest.raises(ConfigError, match=r"models\.a\.limits|limits"):
            Catalog.load(file)


def test_a_variant_is_a_word_and_a_revision_is_not_empty(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models.a]\ncheckpoint = "a"\nvariant = "fp16"\nrevision = "refs/pr/1"\n')
    model = Catalog.load(file).models["a"]
    assert (model.variant, model.revision) == ("fp16", "refs/pr/1")
    for line in ('variant = ".fp16"', 'variant = ""', 'revision = ""'):
        file.write_text(f'[models.a]\ncheckpoint = "a"\n{line}\n')
        with pytest.raises(ConfigError, match=line.partition(" ")[0]):
            Catalog.load(file)
