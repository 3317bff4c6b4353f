"""Which work advances and which is paused, as its makers are told."""

from services.stage.fibre import Fibre
from services.stage.turns import Group, Phase, Unit, Work


class Advancing:
    """Work that is not paused, whoever runs at the moment. `pause_count` is of all work so far."""

    def __init__(self) -> None:
        self._works: list[Work] = []
        self.pause_count = 0

    def turn(self, unit: Unit) -> None:
        """Who goes on is not paused. Who does not, is; but not while one comes to a call that another waits at."""
        going = list(unit.members) if isinstance(unit, Group) else [unit]
        alone_at_call = isinstance(unit, Work) and unit.phase is Phase.CALLING
        if all(work in self._works for work in going) and not alone_at_call:
            return
        waited_for = any(work.phase is Phase.CALLING and work.kind == going[0].kind for work in self._works)
        if isinstance(unit, Work) and not alone_at_call and waited_for:
            return
        for work in self._works:
            if work not in going:
                self.pause_count += 1
                _tell(work, True)
        for work in going:
            _tell(work, False)
        self._works = going

    def end(self, work: Work) -> None:
        """It is done."""
        if work in self._works:
            self._works.remove(work)


def _tell(work: Work, paused: bool) -> None:
    assert isinstance(work, Fibre)
    work.tell(paused)
