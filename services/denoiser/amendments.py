"""How many steps a job is to run: changed on the event loop while the device thread runs it."""

from dataclasses import dataclass, field

from triptych.v1.job_pb2 import Amendment


@dataclass(frozen=True, slots=True)
class StepScale:
    """Steps that a job asks for against those that its loop runs: from a given image only the last part of them.

    `asked` steps came out as `looped`.
    """

    asked: int
    looped: int

    def loop_steps(self, asked: int) -> int:
        """Steps of the loop for so many asked for; at least 1."""
        return max(1, asked * self.looped // self.asked)

    def asked_steps(self, looped: int) -> int:
        """The least number to ask for that makes the loop run so many."""
        return -(-looped * self.asked // self.looped)


@dataclass
class Amendments:
    """Of one call. `step_count` is what each output is to run in all, in the job's own count.

    `earliest_end` (the step that the output at work ends with if it is to finish now), `first` (steps that an earlier
    job had run) and `scale` are the device thread's to write.
    """

    step_count: int
    earliest_end: int = 1
    first: int = 0
    scale: StepScale = field(default=StepScale(1, 1))

    def amend(self, amendment: Amendment) -> int:
        """Take a change in; returns the new `step_count`.

        To finish now is to end with the step under way, or between two with the one that is done: outputs that have not
        begun then run as many steps.
        """
        match amendment.WhichOneof("change"):
            case "finish_now":
                self.step_count = min(self.step_count, self.scale.asked_steps(self.earliest_end))
            case "step_count":
                self.step_count = amendment.step_count
        return self.step_count

    def begin(self, scale: StepScale, first: int) -> None:
        """A loop begins, after so many steps that an earlier job had run."""
        self.scale, self.earliest_end, self.first = scale, first + 1, first

    def fraction(self, step: int, step_count: int) -> float:
        """How much of an output's work is done after so many of its loop's steps: 0 to 1."""
        return (step - self.first) / max(1, step_count - self.first)

    @property
    def loop_steps(self) -> int:
        """Steps that the loop is to have run in all."""
        return self.scale.loop_steps(self.step_count)
