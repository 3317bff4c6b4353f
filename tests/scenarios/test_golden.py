"""The stories in the text files beside this one. `python -m tests.scenarios.golden --write` tells them anew."""

from pathlib import Path

import pytest

from tests.scenarios.golden import STORIES, told


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_the_story_goes_as_it_is_told(story: Path) -> None:
    text = story.read_text()
    assert told(text).splitlines() == text.splitlines()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 5
