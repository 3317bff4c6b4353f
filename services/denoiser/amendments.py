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

    Outputs run one after the other, or together where their forwards are merged. `first` (steps that an earlier job had
    run), `scale`, and what each output could end with are the device thread's to write.
    """

    step_count: int
    first: int = 0
    scale: StepScale = field(default=StepScale(1, 1))
    # Of each output at work, and of the last that was: the step that it ends with if it is to finish now.
    _ends: dict[int, int] = field(default_factory=dict)
    _last_end: int = 1

    def amend(self, amendment: Amendment) -> int:
        """Take a change in; returns the new `step_count`.

        To finish now is to end with the step under way, or between two with the one that is done. Outputs that are not
        as far, or have not begun, then run as many steps.
        """
        match amendment.WhichOneof("change"):
            case "finish_now":
                self.step_count = min(self.step_count, self.scale.asked_steps(self.earliest_end))
            case "step_count":
                self.step_count = amendment.step_count
        return self.step_count

    @property
    def earliest_end(self) -> int:
        """The step that the furthest output at work ends with if it is to finish now."""
        return max(list(self._ends.values()), default=self._last_end)

    def begin(self, output_index: int, scale: StepScale, first: int) -> None:
        """An output's loop begins, after so many steps that an earlier job had run."""
        self.scale, self.first = scale, first
        self.reach(output_index, first + 1)

    def reach(self, output_index: int, step: int) -> None:
        """An output has come so far that it could end with this step."""
        self._ends[output_index] = step

    def end(self, output_index: int) -> None:
        """An output is not at work any more."""
        self._last_end = self._ends.pop(output_index, self._last_end)

    def fraction(self, step: int, step_count: int) -> float:
        """How much of an output's work is done after so many of its loop's steps: 0 to 1."""
        return (step - self.first) / max(1, step_count - self.first)

    @property
    def loop_steps(self) -> int:
        """Steps that the loop is to have run in all."""
        return self.scale.loop_steps(self.step_count)
