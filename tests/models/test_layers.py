import pytest
import torch
import torch.nn.functional as F

from lcwof.models import build_backbone
from lcwof.models.layers import BatchNorm2d, Conv2d, DropBlock, Noise, channels_last, fold_norms, halve, unfolded_conv
from lcwof.models.layers import _thin_conv as thin_conv


@pytest.mark.parametrize(("kernel", "stride", "side"), [(3, 1, 5), (3, 2, 7), (3, 2, 6), (1, 1, 4), (1, 2, 5)])
def test_unfolded_convolution_and_its_slopes_are_the_library_s(kernel: int, stride: int, side: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, side, side, 4, dtype=torch.float64).requires_grad_()
    weight = channels_last(torch.randn(3, 5, 4, kernel, kernel, dtype=torch.float64)).requires_grad_()
    pairs = zip(x, weight, strict=True)
    maps = [F.conv2d(a.movedim(-1, 1), w, stride=stride, padding=kernel // 2) for a, w in pairs]
    expected = torch.stack(maps).movedim(2, -1)
    found = unfolded_conv(x, weight, stride)
    torch.testing.assert_close(found, expected)
    slope = torch.randn_like(expected)
    for mine, theirs in zip(
        torch.autograd.grad(found, (x, weight), slope), torch.autograd.grad(expected, (x, weight), slope), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kernel", [1, 3])
def test_thin_convolution_is_the_library_s(kernel: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 6, 7), torch.randn(5, 3, kernel, kernel)
    torch.testing.assert_close(thin_conv(x, weight), F.conv2d(x, weight, padding=kernel // 2))


def test_dropblock_drops_squares_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(50, 4, 12, 10)
    y = DropBlock(0.3, size=3)(x, Noise(torch.rand))
    torch.testing.assert_close(y.mean(dim=(1, 2, 3)), torch.ones(50))
    gone = (y == 0).float()
    covered = F.max_pool2d(F.pad((F.avg_pool2d(gone, 3, 1) > 0.999).float(), (2, 2, 2, 2)), 3, 1)
    assert torch.equal(gone, covered), "what is gone is a union of 3 x 3 squares"
    assert 0.2 < gone.mean() < 0.35


def test_what_is_compiled_computes_the_same() -> None:
    """The forms that layers take only inside a compiled frozen network."""
    torch.manual_seed(0)
    convs = [Conv2d(3, 8, 3), Conv2d(3, 8, 1)]

    def network(x: torch.Tensor) -> torch.Tensor:
        return halve(convs[0](x) + convs[1](x))

    x = torch.randn(2, 3, 9, 8)
    with torch.no_grad():
        expected = network(x)
        found = torch.compile(network, backend="eager")(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(2, 3, 6, 8, 5), (2, 3, 7, 5, 4)])
def test_compiled_pooling_of_stacked_maps_is_the_library_s(shape: tuple[int, ...]) -> None:
    """Of equal values, which rounded maps are full of, the same one gets the slope."""
    torch.manual_seed(0)
    x = torch.randn(shape).mul(2).round().requires_grad_()
    expected, found = halve(x), torch.compile(halve, backend="eager")(x)
    torch.testing.assert_close(found, expected)
    slope = torch.randn_like(expected)
    mine, theirs = (torch.autograd.grad(y, x, slope)[0] for y in (found, expected))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", ["conv4", "resnet12", "resnet18", "efficientnet-lite0"])
def test_folding_norms_into_convolutions_changes_nothing(name: str) -> None:
    torch.manual_seed(0)
    network = build_backbone(name, (3, 20, 20)).double().eval()
    for norm in network.modules():
        if isinstance(norm, BatchNorm2d):
            assert norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 3, 20, 20, dtype=torch.float64)
    with torch.no_grad():
        expected = network(x)
        fold_norms(network)
        torch.testing.assert_close(network(x), expected)
    assert not any(isinstance(part, BatchNorm2d) for part in network.modules())


def test_own_statistics_are_those_of_each_learner_s_batches() -> None:
    """Two learners in training mode are two of the library's layers: outputs, slopes and running statistics."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, 3, 4, 5).mul(2).add(1).requires_grad_()  # (E, B, H, W, C)
    layer = BatchNorm2d(5).train()
    weights = {"weight": torch.randn(2, 5), "bias": torch.randn(2, 5)}
    statistics = {"running_mean": torch.randn(2, 5), "running_var": torch.rand(2, 5) + 0.5}
    own = {name: value.clone() for name, value in statistics.items()}
    found = torch.func.functional_call(layer, {**weights, **own}, (x,))
    slope = torch.randn_like(found)
    mine = torch.autograd.grad(found, x, slope)[0]
    for learner in range(2):
        theirs = torch.nn.BatchNorm2d(5).train()
        theirs.load_state_dict({k: v[learner] for k, v in {**weights, **statistics}.items()}, strict=False)
        maps = x[learner].movedim(-1, 1)
        expected = theirs(maps)
        torch.testing.assert_close(found[learner].movedim(-1, 1), expected, atol=1e-5, rtol=1e-5)
        (back,) = torch.autograd.grad(expected, maps, slope[learner].movedim(-1, 1))
        torch.testing.assert_close(mine[learner].movedim(-1, 1), back, atol=1e-5, rtol=1e-4)
        for name in statistics:
            torch.testing.assert_close(own[name][learner], getattr(theirs, name))
