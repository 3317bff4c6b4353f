"""Which of a job's texts it was that a tokenizer was given."""

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from services.encoder.text_readings import Tokenized, observe_tokenizers, text_readings
from tests.tiny_tokenizers import t5_tokenizer

Counted = list[tuple[str, int]]


def fields(seen: list[tuple[str, int]], *jobs: dict[str, str]) -> list[Counted]:
    """Of each job the texts that were read and their tokens; a tokenizer takes 77."""
    read = text_readings([Tokenized("tokenizer", text, count, 77) for text, count in seen], jobs)
    return [[(reading.field, reading.token_count) for reading in readings] for readings in read]


def test_each_text_has_its_field() -> None:
    texts = {"prompt": "a red cat", "negative_prompt": "a cat", "prompt_2": "a red cat on a mat"}
    seen = [("a red cat", 5), ("a red cat on a mat", 8), ("a cat", 4)]
    assert fields(seen, texts) == [[("prompt", 5), ("extra.prompt_2", 8), ("negative_prompt", 4)]]


def test_equal_texts_are_told_of_both() -> None:
    assert fields([("cat", 99)], {"prompt": "cat", "negative_prompt": "cat"}) == [
        [("prompt", 99), ("negative_prompt", 99)]
    ]


def test_jobs_that_were_encoded_together() -> None:
    seen = [("cat", 3), ("cat and dog", 99)]
    assert fields(seen, {"prompt": "cat"}, {"prompt": "cat and dog"}) == [[("prompt", 3)], [("prompt", 99)]]


def test_a_template_around_the_text_and_what_cleaning_does_to_it() -> None:
    texts = {"prompt": "\u201ccat\u201d  &amp;amp; dog", "negative_prompt": ""}
    seen = [('<user> Describe: "cat" & dog </user>', 99), ("<user> Describe: </user>", 9)]
    assert fields(seen, texts) == [[("prompt", 99), ("negative_prompt", 9)]]


def test_a_text_that_nobody_would_know_again_is_taken_for_the_nearest_in_length_if_it_was_cut() -> None:
    texts = {"prompt": "c\u00e3t " * 30, "negative_prompt": "dog"}
    assert fields([("cat " * 30, 99)], texts) == [[("prompt", 99)]]
    assert fields([("a suffix of the model's", 9)], texts) == [[]]


def test_what_was_read_twice_is_told_once() -> None:
    assert fields([("cat", 99), ("cat", 99)], {"prompt": "cat"}) == [[("prompt", 99)]]


@pytest.fixture
def tokenizer() -> Any:
    """Each letter is a token; a space before the text, and its end, are two more."""
    made = t5_tokenizer()
    made.chat_template = "<{{ messages[0]['content'] }}>"
    return made


def observed(component: Any) -> tuple[Any, list[Tokenized]]:
    """As a job has it, and what is noted."""
    fork = SimpleNamespace(components={"tokenizer": component})
    return fork, observe_tokenizers(fork)


def test_a_tokenizer_gives_what_it_would_give_unobserved(tokenizer: PreTrainedTokenizerBase) -> None:
    fork, seen = observed(tokenizer)
    options: dict[str, Any] = {"truncation": True, "max_length": 6, "padding": "max_length", "return_tensors": "pt"}
    texts = ["abcdefghij", "ab", ""]
    assert fork.tokenizer(texts, **options)["input_ids"].equal(tokenizer(texts, **options)["input_ids"])
    assert seen == [Tokenized("tokenizer", text, count, 6) for text, count in (("abcdefghij", 12), ("ab", 4), ("", 1))]
    assert type(tokenizer) is type(t5_tokenizer())


def test_what_is_not_to_be_cut_is_not_noted(tokenizer: PreTrainedTokenizerBase) -> None:
    fork, seen = observed(tokenizer)
    fork.tokenizer("abcdefghij", padding="longest")
    fork.tokenizer.batch_decode([[4, 5]])
    assert seen == []


def test_a_chat_template_is_a_part_of_the_text(tokenizer: PreTrainedTokenizerBase) -> None:
    fork, seen = observed(tokenizer)
    chat = [{"role": "user", "content": "abcdefghij"}]
    fork.tokenizer.apply_chat_template(chat, tokenize=True, truncation=True, max_length=8)
    [noted] = seen
    assert (noted.text, noted.token_limit, noted.is_cut) == ("<abcdefghij>", 8, True)


def test_the_tokenizer_of_a_processor(tokenizer: PreTrainedTokenizerBase) -> None:
    processor = SimpleNamespace(tokenizer=tokenizer)
    fork, seen = observed(processor)
    fork.tokenizer.tokenizer("abcdefghij", truncation=True, max_length=6)
    assert [(noted.token_count, noted.token_limit) for noted in seen] == [(12, 6)]
    assert processor.tokenizer is tokenizer
