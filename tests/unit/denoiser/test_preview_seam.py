"""Which blocks follow a loop: those after it in every sequence around it, and nothing of its alternatives."""

from diffusers.modular_pipelines.modular_pipeline import (
    AutoPipelineBlocks,
    LoopSequentialPipelineBlocks,
    ModularPipelineBlocks,
    SequentialPipelineBlocks,
)

from services.denoiser.preview_seam import blocks_after


class Step(ModularPipelineBlocks):
    pass


class Loop(LoopSequentialPipelineBlocks):
    block_classes = [Step]  # noqa: RUF012 - as diffusers has them
    block_names = ["step"]  # noqa: RUF012


def sequence(*blocks: ModularPipelineBlocks) -> SequentialPipelineBlocks:
    return SequentialPipelineBlocks.from_blocks_dict({f"block_{index}": block for index, block in enumerate(blocks)})


def test_in_a_sequence() -> None:
    before, loop, after, last = Step(), Loop(), Step(), Step()
    assert list(blocks_after(sequence(before, loop, after, last), loop)) == [after, last]


def test_in_nested_sequences_from_the_inside_out() -> None:
    loop, near, far = Loop(), Step(), Step()
    assert list(blocks_after(sequence(Step(), sequence(Step(), loop, near), far), loop)) == [near, far]


def test_alternatives_do_not_follow_one_another() -> None:
    class Choice(AutoPipelineBlocks):
        block_classes = [Step, Step]  # noqa: RUF012
        block_names = ["one", "other"]  # noqa: RUF012
        block_trigger_inputs = ["image", None]  # noqa: RUF012

    choice, loop, unpack, after = Choice(), Loop(), Step(), Step()
    choice.sub_blocks["one"] = sequence(loop, unpack)
    assert list(blocks_after(sequence(choice, after), loop)) == [unpack, after]


def test_nothing_follows_a_loop_that_is_not_there_or_alone() -> None:
    loop = Loop()
    assert list(blocks_after(loop, loop)) == []
    assert list(blocks_after(sequence(Step(), Step()), loop)) == []
