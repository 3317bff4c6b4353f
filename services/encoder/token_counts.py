"""What a model's tokenizers would read of a job's texts, foretold by diffusers' customs: no block runs."""

import re
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from services.encoder.text_readings import text_reading, tokenizers
from services.stage.hosted_block import HostedBlock, guided, guiders
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import guidance
from triptych.v1.job_pb2 import JobSpec, TextReading

# An input that says how long a text may be, to the tokenizers that take as much as its default.
_LIMIT = "max_sequence_length"
_NUMBERED = re.compile(r"(.*?)(?:_(\d+))?")


def foretold_readings(model: HostedModel, spec: JobSpec) -> list[TextReading]:
    """Of the blocks that are loaded. What a model's own template adds is not counted. On the device thread."""
    inputs = model.inputs(spec)
    found = []
    for hosted in model.loaded:
        declared = hosted.contract.inputs
        texts = {name: value for name, value in inputs.items() if name in declared and isinstance(value, str)}
        if not _takes_negatives(hosted, guidance(spec)):
            texts = {name: text for name, text in texts.items() if not name.startswith("negative")}
        for component, tokenizer in tokenizers(hosted.pipeline).items():
            limit = _limit(hosted, tokenizer, inputs)
            for name in _read_by(component, texts):
                count = len(tokenizer(texts[name], verbose=False)["input_ids"])
                found.append(text_reading(name, component, count, limit))
    return found


def _limit(hosted: HostedBlock, tokenizer: PreTrainedTokenizerBase, inputs: Mapping[str, Any]) -> int:
    own, usual = int(tokenizer.model_max_length), hosted.contract.defaults.get(_LIMIT)
    if not isinstance(usual, int) or own < usual:
        return own
    return min(own, int(inputs.get(_LIMIT, usual)))


def _takes_negatives(hosted: HostedBlock, scale: float | None) -> bool:
    found = [guided(stock, scale) for stock in guiders(hosted.pipeline).values()]
    return not found or any(guider.num_conditions > 1 for guider in found)


def _read_by(tokenizer: str, texts: Mapping[str, str]) -> list[str]:
    """The texts that are for this tokenizer: `prompt_2` is for `tokenizer_2`, or `prompt` where that is not given."""
    number = _number(tokenizer)
    return [
        name for name in texts if _number(name) == number or (_number(name) == 1 and not texts.get(f"{name}_{number}"))
    ]


def _number(name: str) -> int:
    found = _NUMBERED.fullmatch(name)
    return int(found[2]) if found is not None and found[2] else 1
