"""An episode is its number: random numbers as a pure function of (seed, episode, what they are for).

Every number is a hash of its address, so nothing depends on how many episodes run together, in which order,
on which device, or on how often a run was interrupted. There is no state to save. (What a kept view of a replayed
image looks like is the image's own, `keys_of`: which of them an episode draws is the episode's.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # 0xbf58476d1ce4e5b9, 0x94d049bb133111eb
_GOLDEN = -7046029254386353131  # 0x9e3779b97f4a7c15, the increment of splitmix64
_NEXT = -2960836687051489635  # an odd number of its own, so that substreams are not shifted copies of their stream


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64, which torch has only as an arithmetic one."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64: a bijection of 64-bit integers that scatters neighbours."""
    x = (x ^ _shift(x, 30)) * _MULTIPLIERS[0]
    x = (x ^ _shift(x, 27)) * _MULTIPLIERS[1]
    return x ^ _shift(x, 31)


def _number(name: object) -> int:
    """A signed 64-bit integer for any name, the same on every machine."""
    digest = hashlib.blake2b(repr(name).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniform(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Numbers in [0, 1) of shape (len(keys), *shape), each a hash of its stream's key and its own position.

    Nothing here but tensor arithmetic, so that a compiled network draws its numbers where it uses them.
    """
    counter = (
        torch.arange(prod(shape), device=keys.device) ^ 0
    ) * _GOLDEN  # ^ 0: the compiler would overflow folding this
    bits = _shift(_mix(keys[:, None] + counter), 40)
    return (bits.to(torch.float32) * 2.0**-24).view(len(keys), *shape)


def substream(keys: Tensor, number: int) -> Tensor:
    """Keys of the numbered stream below each stream."""
    offset = (number * _NEXT + (1 << 63)) % (1 << 64) - (1 << 63)  # a 64-bit integer, as overflow would leave it
    return _mix(_mix(keys + offset))


def keys_of(numbers: Tensor, purpose: object) -> Tensor:
    """Keys of the streams that numbers have for a purpose."""
    return _mix(_mix(numbers * _GOLDEN + _number(purpose)) + _GOLDEN)


class Randomness:
    """E independent streams of random numbers, one a learner.

    >>> draws = Randomness.of_episodes(seed=0, episodes=[3, 4])
    >>> draws["shots"].uniform(2).shape
    torch.Size([2, 2])
    >>> alone = Randomness.of_episodes(seed=0, episodes=[4])
    >>> bool((alone["shots"].uniform(2)[0] == draws["shots"].uniform(2)[1]).all())
    True
    """

    def __init__(self, keys: Tensor, episodes: tuple[int, ...]) -> None:
        self.keys = keys
        self.episodes = episodes  # whose streams these are, for messages

    @classmethod
    def of_episodes(cls, seed: int, episodes: Sequence[int], device: torch.device | str = "cpu") -> Randomness:
        numbers = torch.tensor(list(episodes), dtype=torch.int64, device=device)
        return cls(keys_of(numbers, ("seed", seed)), tuple(episodes))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, purpose: object) -> Randomness:
        """The streams for one purpose: `draws["phase2", epoch]`."""
        return Randomness(_mix(self.keys + _number(purpose)), self.episodes)

    def to(self, device: torch.device | str) -> Randomness:
        return Randomness(self.keys.to(device), self.episodes)

    def part(self, places: Sequence[int]) -> Randomness:
        """Those of some of the learners."""
        return Randomness(self.keys[list(places)], tuple(self.episodes[at] for at in places))

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1) of shape (E, *shape)."""
        return uniform(self.keys, shape)

    def spread(self, n: int) -> Tensor:
        """Keys of n streams for each of the E, one an image: (E * n,), learner by learner."""
        return _mix(self.keys[:, None] + torch.arange(n, device=self.keys.device) * _GOLDEN).flatten()

    def permutation(self, n: int) -> Tensor:
        """One random order of 0..n-1 a learner, shape (E, n)."""
        return self.uniform(n).argsort(dim=1, stable=True)

    def rows(self, counts: Tensor, k: int) -> Tensor:
        """For each of C bins of the given sizes (C,), k different positions in it: (E, C, k)."""
        if k == 1:
            return (self.uniform(len(counts)) * counts).long().unsqueeze(-1)
        largest = int(counts.max())
        scores = self.uniform(len(counts), largest)
        beyond = torch.arange(largest, device=counts.device) >= counts[:, None]
        return scores.masked_fill(beyond, 2.0).argsort(dim=-1, stable=True)[..., :k]
