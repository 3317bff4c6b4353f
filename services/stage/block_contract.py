"""What a block declares, worked out once: diffusers works it out anew, over all sub-blocks, at each look."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BlockContract:
    """A block's inputs and outputs.

    `outputs` maps each output to its kind of input ("denoiser_input_fields"; "" if it has none). `carried` are those
    that a later block of the pipeline declares, by name or by kind: what must travel. `triggers` are inputs of which
    one must be given for the block to do anything; empty if it always runs.
    """

    class_name: str
    # As diffusers declares them (`InputParam`), in order.
    params: tuple[Any, ...]
    inputs: frozenset[str]
    kinds: frozenset[str]
    outputs: dict[str, str]
    components: frozenset[str]
    triggers: frozenset[str]
    carried: frozenset[str]

    @property
    def defaults(self) -> dict[str, Any]:
        """Its inputs by name, each at its default."""
        return {param.name: param.default for param in self.params if param.name}

    @property
    def draws(self) -> bool:
        """Whether it draws noise, so that its result belongs to one output."""
        return "generator" in self.inputs

    def is_triggered(self, inputs: dict[str, Any]) -> bool:
        """Whether it does anything with these inputs."""
        return not self.triggers or any(inputs.get(name) is not None for name in self.triggers)


def read_contracts(blocks: dict[str, Any]) -> dict[str, BlockContract]:
    """The contracts of a pipeline's blocks, which run in this order."""
    contracts: dict[str, BlockContract] = {}
    later_names: set[str] = set()
    later_kinds: set[str] = set()
    for name, block in reversed(blocks.items()):
        outputs = {param.name: param.kwargs_type or "" for param in block.intermediate_outputs}
        carried = {output for output, kind in outputs.items() if output in later_names or kind in later_kinds}
        params = tuple(block.inputs)
        inputs = {param.name for param in params if param.name}
        kinds = {param.kwargs_type for param in params if param.name is None and param.kwargs_type}
        triggers = getattr(block, "block_trigger_inputs", None) or []
        contracts[name] = BlockContract(
            class_name=type(block).__name__,
            params=params,
            inputs=frozenset(inputs),
            kinds=frozenset(kinds),
            outputs=outputs,
            components=frozenset(block.component_names),
            triggers=frozenset() if None in triggers else frozenset(triggers),
            carried=frozenset(carried),
        )
        later_names |= inputs
        later_kinds |= kinds
    return {name: contracts[name] for name in blocks}
