"""The documents name things that are there."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)\)")
PATH = re.compile(r"`((?:bench|deploy|docs|examples|models|protos|services|tests|triptych)/[\w./-]+)`")


def test_decisions_have_a_number_each() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    counts = Counter(file.name[:4] for file in files)
    assert [number for number, count in counts.items() if count > 1] == []
    assert [file.name for file in files if not file.read_text().startswith(f"# {int(file.name[:4])}. ")] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    missing = [link for link in LINK.findall(text) if not (document.parent / link).exists()]
    missing += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert missing == []
