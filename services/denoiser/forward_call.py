"""One call of a network as data: what makes two of them equal, several as one, and one result as several."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

# Arguments other than tensors are equal or the calls are not.
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)


class Unmergeable(Exception):
    """Calls that cannot be computed together after all."""


@dataclass(eq=False)
class ForwardCall:
    """A call of `function`, which is a network's own forward. `network` names it.

    Its batch is the first dimension of its first tensor that has more than one. Tensors of that first dimension hold a
    part for each sample; a number in a tensor of none is the call's own, and becomes one for each sample; all others
    are shared: position ids, say, which must be equal.
    """

    network: Hashable
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Of the job that makes it.
    kind: Hashable | None = None
    result: Any = None
    # It has been computed with others; `batch` calls in all.
    done: bool = False
    batch: int = 1

    @cached_property
    def _flat(self) -> tuple[list[Any], TreeSpec]:
        return tree_flatten((self.args, self.kwargs))

    @cached_property
    def size(self) -> int:
        """Samples of this call; 0 if it has no tensor that tells."""
        return next((leaf.shape[0] for leaf in self._flat[0] if isinstance(leaf, torch.Tensor) and leaf.ndim > 1), 0)

    @cached_property
    def signature(self) -> Hashable | None:
        """Equal for calls that may be computed together, but for what they share; None if this one may not be."""
        leaves, spec = self._flat
        parts = tuple(map(_describe, leaves))
        return None if not self.size or None in parts else (self.network, spec, parts)

    @property
    def shared(self) -> list[torch.Tensor]:
        """The tensors that are not of any sample's own."""
        return [leaf for leaf in self._flat[0] if isinstance(leaf, torch.Tensor) and not self._is_own(leaf)]

    def merges_with(self, other: object) -> bool:
        if not isinstance(other, ForwardCall) or self.signature is None or self.signature != other.signature:
            return False
        return all(
            mine is theirs or torch.equal(mine, theirs) for mine, theirs in zip(self.shared, other.shared, strict=True)
        )

    def alone(self) -> Any:
        """Compute it by itself."""
        return self.function(*self.args, **self.kwargs)

    def _is_own(self, tensor: torch.Tensor) -> bool:
        return tensor.ndim == 0 or tensor.shape[0] == self.size


def together(calls: Sequence[ForwardCall]) -> list[Any]:
    """The results of equal calls, computed as one. Raises `Unmergeable`, and whatever the network raises."""
    first = calls[0]
    leaves = [_joined(first, column) for column in zip(*(call._flat[0] for call in calls), strict=True)]
    versions = [tensor._version for tensor in first.shared]
    args, kwargs = tree_unflatten(leaves, first._flat[1])
    result = first.function(*args, **kwargs)
    if versions != [tensor._version for tensor in first.shared]:
        raise Unmergeable("the network changes an argument that its samples share")
    return _split(result, len(calls), first.size)


def close(these: Any, those: Any) -> bool:
    """Whether two results are equal but for rounding: the root of the type's precision, of the largest value."""
    mine, spec = tree_flatten(these)
    theirs, other_spec = tree_flatten(those)
    return spec == other_spec and all(map(_close, mine, theirs))


def _describe(leaf: Any) -> Hashable | None:
    if isinstance(leaf, torch.Tensor):
        return (leaf.shape, leaf.dtype, leaf.device)
    return (type(leaf), leaf) if isinstance(leaf, _PLAIN) else None


def _joined(first: ForwardCall, column: Sequence[Any]) -> Any:
    leaf = column[0]
    if not isinstance(leaf, torch.Tensor) or not first._is_own(leaf):
        return leaf
    return torch.cat([each.expand(first.size) if each.ndim == 0 else each for each in column])


def _split(result: Any, count: int, size: int) -> list[Any]:
    leaves, spec = tree_flatten(result)
    columns = [_parts(leaf, count, size) for leaf in leaves]
    return [tree_unflatten([column[index] for column in columns], spec) for index in range(count)]


def _parts(leaf: Any, count: int, size: int) -> Sequence[Any]:
    if isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[0] == count * size:
        return torch.split(leaf, size)
    if isinstance(leaf, _PLAIN):
        return [leaf] * count
    raise Unmergeable("the network's result is not one part for each sample")


def _close(mine: Any, theirs: Any) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return type(mine) is type(theirs) and bool(mine == theirs)
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    if not mine.is_floating_point():
        return torch.equal(mine, theirs)
    finite = theirs[theirs.isfinite()].double()
    allowed = torch.finfo(mine.dtype).eps ** 0.5 * (finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(mine.double(), theirs.double(), rtol=0.0, atol=allowed, equal_nan=True)
