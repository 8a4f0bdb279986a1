import torch

from lcwof.randomness import Randomness


def test_numbers_are_the_same_on_every_machine() -> None:
    numbers = Randomness.of_episodes(0, [0, 1])["shots"].uniform(2)
    expected = torch.tensor([[0.044237732887268066, 0.02670896053314209], [0.7928061485290527, 0.9418940544128418]])
    assert torch.equal(numbers, expected)


def test_an_episode_does_not_depend_on_its_company() -> None:
    together = Randomness.of_episodes(3, range(7))["a", 1].uniform(5, 2)
    alone = Randomness.of_episodes(3, [4])["a", 1].uniform(5, 2)
    shuffled = Randomness.of_episodes(3, [6, 4, 0])["a", 1].uniform(5, 2)
    assert torch.equal(together[4], alone[0])
    assert torch.equal(together[[6, 4, 0]], shuffled)


def test_seeds_episodes_and_purposes_differ() -> None:
    streams = [
        Randomness.of_episodes(seed, [episode])[purpose].uniform(1000)[0]
        for seed in (0, 1)
        for episode in (0, 1)
        for purpose in ("a", "b", ("a", 0))
    ]
    correlation = torch.corrcoef(torch.stack(streams)) - torch.eye(len(streams))
    assert correlation.abs().max() < 0.15


def test_uniform_is_uniform() -> None:
    numbers = Randomness.of_episodes(0, range(10))["x"].uniform(10_000)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = torch.histc(numbers, 20, 0, 1)
    chi2 = ((counts - 5000) ** 2 / 5000).sum()
    assert chi2 < 43.8  # the 99.9% point for 19 degrees of freedom


def test_permutations_hold_every_number_once() -> None:
    orders = Randomness.of_episodes(0, range(50))["order"].permutation(9)
    assert torch.equal(orders.sort(dim=1).values, torch.arange(9).expand(50, 9))
    assert len({tuple(order) for order in orders.tolist()}) > 45


def test_rows_are_different_and_within_their_bin() -> None:
    counts = torch.tensor([3, 8, 5])
    for k in (1, 2, 3):
        rows = Randomness.of_episodes(0, range(200))["rows"].rows(counts, k)
        assert rows.shape == (200, 3, k)
        assert (rows < counts.view(1, 3, 1)).all()
        assert all(len(set(r)) == k for learner in rows.tolist() for r in learner)
        assert rows[:, 1].unique().tolist() == list(range(8))
