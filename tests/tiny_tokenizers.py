"""Tokenizers of some hundred tokens, for checkpoints made from configs alone."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPTokenizer, PreTrainedTokenizerFast


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """Every character is a token, at the end of a word another one; its files are written into `folder`."""
    letters = [chr(code) for code in range(33, 127)]
    tokens = letters + [letter + "</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


def t5_tokenizer() -> PreTrainedTokenizerFast:
    """Every character is a token, in the manner of T5."""
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -5.0)]
    vocab += [(chr(code), -1.0) for code in range(32, 127)] + [("\u2581", -1.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )
