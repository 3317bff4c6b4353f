"""What a block's tokenizers read of a job's texts: how many tokens there were, and how many the model takes."""

import copy
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from triptych.v1.job_pb2 import TextReading

# Inputs that a field of the spec stands for; all others are named in `extra`.
_OWN_FIELDS = ("prompt", "negative_prompt")
_UNLIMITED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Tokenized:
    """One text as a block handed it to a tokenizer that may cut it."""

    tokenizer: str
    text: str
    token_count: int
    token_limit: int

    @property
    def is_cut(self) -> bool:
        return self.token_count > self.token_limit


def tokenizers(pipeline: Any) -> dict[str, PreTrainedTokenizerBase]:
    """The tokenizers of a pipeline by component name, those of its processors included."""
    parts = {name: getattr(part, "tokenizer", part) for name, part in pipeline.components.items()}
    return {name: part for name, part in parts.items() if isinstance(part, PreTrainedTokenizerBase)}


def observe_tokenizers(fork: Any) -> list[Tokenized]:
    """Have a job's own pipeline note what its tokenizers are given: the list is filled as its blocks run."""
    seen: list[Tokenized] = []
    for name, tokenizer in tokenizers(fork).items():
        own = copy.copy(fork.components[name])
        observed = own if fork.components[name] is tokenizer else copy.copy(tokenizer)
        observed.__class__ = _observing(cast(Any, type(tokenizer)))
        vars(observed)["observed"] = (name, seen)
        if observed is not own:
            own.tokenizer = observed
        setattr(fork, name, own)
    return seen


def text_readings(seen: Sequence[Tokenized], jobs: Sequence[Mapping[str, str]]) -> list[list[TextReading]]:
    """What was read of each job's texts, which are told apart by what they say; `jobs` have them by input."""
    found: list[list[TextReading]] = [[] for _ in jobs]
    for tokenized in seen:
        for index, name in _sources(tokenized, jobs):
            reading = text_reading(name, tokenized.tokenizer, tokenized.token_count, tokenized.token_limit)
            if reading not in found[index]:
                found[index].append(reading)
    return found


def text_reading(name: str, tokenizer: str, token_count: int, token_limit: int) -> TextReading:
    """What a tokenizer read of a block's input, which is named as in the spec."""
    field = name if name in _OWN_FIELDS else f"extra.{name}"
    # A tokenizer without a limit says so with a number of thirty digits.
    limit = min(token_limit, _UNLIMITED)
    return TextReading(field=field, tokenizer=tokenizer, token_count=token_count, token_limit=limit)


@cache
def _observing(kind: Any) -> Any:
    """Tokenizers of this kind that note what they may cut. A chat template's result comes by `__call__` too."""

    class Observing(kind):  # type: ignore[misc]
        def __call__(self, text: Any = None, *args: Any, **options: Any) -> Any:
            if options.get("truncation"):
                name, seen = vars(self)["observed"]
                special = bool(options.get("add_special_tokens", True))
                limit = int(options.get("max_length") or self.model_max_length)
                for each in [text] if isinstance(text, str) else text:
                    if isinstance(each, str):
                        seen.append(Tokenized(name, each, self._whole_count(each, special), limit))
            return super().__call__(text, *args, **options)

        def _whole_count(self, text: str, special: bool) -> int:
            return len(super().__call__(text, add_special_tokens=special, verbose=False)["input_ids"])

    return Observing


def _sources(tokenized: Tokenized, jobs: Sequence[Mapping[str, str]]) -> list[tuple[int, str]]:
    """The texts that a block made this one of: it may have cleaned them, or put them into a template.

    Of those that it contains the longest; if it contains none and was cut, those nearest to its length.
    """
    whole = _letters(tokenized.text)
    parts = {(index, name): _letters(text) for index, texts in enumerate(jobs) for name, text in texts.items()}
    distances = {source: len(whole) - len(part) for source, part in parts.items() if part in whole}
    if not distances and tokenized.is_cut:
        distances = {source: abs(len(whole) - len(part)) for source, part in parts.items()}
    nearest = min(distances.values(), default=0)
    return [source for source, distance in distances.items() if distance == nearest]


def _letters(text: str) -> str:
    """What cleaning leaves as it is: neither entities, nor spaces, nor quotation marks."""
    return "".join(character for character in html.unescape(html.unescape(text)) if character.isalnum())
