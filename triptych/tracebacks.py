"""What an error's traceback holds."""

import traceback


def clear_frames(error: BaseException) -> None:
    """Forget the local variables of all frames that the error has left, and its causes; lines and names stay.

    They may be tensors, and they lead back to the error: until the collector of cycles comes by, which is seldom, all
    that the work had would stay. Frames that still run keep theirs.
    """
    found, ahead = set[int](), [error]
    while ahead:
        each = ahead.pop()
        if id(each) in found:
            continue
        found.add(id(each))
        traceback.clear_frames(each.__traceback__)
        ahead += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            ahead += each.exceptions
