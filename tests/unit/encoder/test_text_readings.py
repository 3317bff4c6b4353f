"""Which of a job's texts it was that a tokenizer was given."""

from services.encoder.text_readings import Tokenized, text_readings

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
