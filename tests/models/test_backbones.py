import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from lcwof.errors import LcwofError
from lcwof.models import backbone_names, build_backbone
from lcwof.models.layers import BatchNorm2d, ChannelDropout, DropBlock, Dropout, Noise

SHAPE = (3, 20, 20)


@pytest.mark.parametrize("name", backbone_names())
def test_trunk_and_tail_make_the_whole(name: str) -> None:
    backbone = build_backbone(name, SHAPE).eval()
    x = torch.randn(2, *SHAPE)
    whole = backbone(x)
    assert whole.shape == (2, backbone.dim)
    for adapt in range(len(backbone.stages) + 1):
        torch.testing.assert_close(backbone.tail(adapt)(backbone.trunk(adapt)(x)), whole)


@pytest.mark.parametrize("name", backbone_names())
def test_stacked_weights_act_as_separate_networks(name: str) -> None:
    torch.manual_seed(0)
    backbone = build_backbone(name, SHAPE).eval()
    for norm in backbone.modules():
        if isinstance(norm, BatchNorm2d):
            assert norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    tail = backbone.tail(len(backbone.stages))
    learners = [{k: v + 0.05 * torch.randn_like(v) for k, v in tail.named_parameters()} for _ in range(3)]
    stacked = {k: torch.stack([learner[k] for learner in learners]) for k in learners[0]}
    x = torch.randn(3, 2, *SHAPE)
    together = functional_call(tail, stacked, (x.movedim(2, -1),))
    for e, learner in enumerate(learners):
        torch.testing.assert_close(together[e], functional_call(tail, learner, (x[e],)), atol=1e-3, rtol=1e-3)


def test_the_papers_resnet12() -> None:
    backbone = build_backbone("resnet12", (3, 84, 84))
    assert backbone.dim == 640
    assert backbone.trunk(1).eval()(torch.zeros(1, 3, 84, 84)).shape == (1, 320, 10, 10)
    assert sum(p.numel() for p in backbone.parameters()) == 12_424_320


def test_the_authors_conv4() -> None:
    backbone = build_backbone("conv4-wide", (3, 84, 84)).eval()
    maps = backbone.trunk(1)(torch.zeros(2, 3, 84, 84))
    assert maps.shape == (2, 256, 10, 10) and backbone.tail(1)(maps).shape == (2, 128)
    assert sum(p.numel() for p in backbone.parameters()) == 3_487_616
    x, all_of_it = torch.randn(2, 3, 84, 84), Noise(torch.zeros)
    assert backbone.trunk(3)(x).min() < 0, "leaky"
    assert backbone.trunk(2)(x, all_of_it).abs().sum() > 0 == backbone.trunk(1)(x, all_of_it).abs().sum()
    assert (backbone.stages[3].block(maps, all_of_it) == 0).all(), "blocks 3 and 4 drop channels"  # type: ignore
    backbone.train()
    embedded = backbone(torch.randn(40, 3, 84, 84))
    torch.testing.assert_close(embedded.mean(0), torch.zeros(128), atol=1e-4, rtol=0)
    torch.testing.assert_close(embedded.var(0, correction=0), torch.ones(128), atol=1e-2, rtol=0)


def test_frozen_bn_is_what_torch_computes_in_evaluation_mode() -> None:
    norm = BatchNorm2d(4)
    norm.train()
    norm(torch.randn(8, 4, 3, 3) * 2 + 1)
    norm.eval()
    x = torch.randn(2, 4, 3, 3)
    expected = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.1, norm.eps)
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize("layer", [Dropout(0.3), ChannelDropout(0.3), DropBlock(0.3, size=2)])
def test_dropping_keeps_the_mean_and_drops_the_stated_part(layer: torch.nn.Module) -> None:
    x = torch.ones(1, 400, 10, 6, 6)
    noise = Noise(lambda shape: torch.rand(shape, generator=torch.Generator().manual_seed(0)))
    out = layer(x, noise)
    assert abs(float(out.mean()) - 1) < 0.01
    dropped = float((out == 0).float().mean())
    assert 0.22 < dropped < 0.32  # overlapping blocks drop a little less than the rate
    assert torch.equal(layer(x, None), x)


def test_whole_channels_are_dropped_and_the_same_stacked_or_not() -> None:
    noise = Noise(lambda shape: torch.rand(shape, generator=torch.Generator().manual_seed(0)))
    x = torch.rand(6, 50, 3, 4) + 1  # above 0
    out = ChannelDropout(0.3)(x, noise)
    whole = (out == 0).flatten(2)
    assert torch.equal(whole.all(-1), whole.any(-1)) and 0.2 < float(whole.float().mean()) < 0.4
    kept = ~whole.all(-1)
    torch.testing.assert_close(out[kept], x[kept] / 0.7)
    stacked = ChannelDropout(0.3)(x.view(2, 3, 50, 3, 4).movedim(2, -1), noise)
    torch.testing.assert_close(stacked.movedim(-1, 2).flatten(0, 1), out)


def test_strength_ramps_dropblock_alone() -> None:
    noise = Noise(lambda shape: torch.rand(shape, generator=torch.Generator().manual_seed(0)), strength=0.1)
    x = torch.ones(200, 10, 6, 6)
    assert abs(float((Dropout(0.3)(x, noise) == 0).float().mean()) - 0.3) < 0.01
    assert abs(float((DropBlock(0.3, size=2)(x, noise) == 0).float().mean()) - 0.03) < 0.01


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(LcwofError, match="no backbone named 'resnet99'"):
        build_backbone("resnet99", SHAPE)
    with pytest.raises(LcwofError, match="use mlp"):
        build_backbone("conv4", (512,))
    with pytest.raises(LcwofError, match="adapt=9"):
        build_backbone("conv4", SHAPE).tail(9)
