"""Training packed parameters agrees with training dense ones whose gradients are projected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from twins import MIRRORED, TYPES, KeepsResults, each_type, project

from packedtri import LowerTriangular, PackedTensor, Symmetric

N = 5

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05}),
    "sgd-momentum": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    ),
    "adam": (torch.optim.Adam, {"lr": 0.05}),
    "adam-amsgrad": (torch.optim.Adam, {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    "rmsprop-centered": (torch.optim.RMSprop, {"lr": 0.01, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
    "adagrad-initial": (torch.optim.Adagrad, {"lr": 0.05, "initial_accumulator_value": 0.1}),
    "adadelta": (torch.optim.Adadelta, {"lr": 0.5}),
    "adamax": (torch.optim.Adamax, {"lr": 0.05}),
    "nadam": (torch.optim.NAdam, {"lr": 0.05}),
    "radam": (torch.optim.RAdam, {"lr": 0.05}),
    "asgd": (torch.optim.ASGD, {"lr": 0.05}),
}
FUSED = ("sgd", "sgd-momentum", "adam", "adam-amsgrad", "adamw", "adagrad", "adagrad-initial")
MODES = [
    (name, mode)
    for name in OPTIMIZERS
    for mode in ({"foreach": False}, {"foreach": True}, {"fused": True})
    if "fused" not in mode or name in FUSED
]


def twins(cls: type, device: str) -> tuple[nn.Parameter, nn.Parameter]:
    """A packed parameter and a dense one whose gradient is projected as it arrives."""
    packed = nn.Parameter(cls.randn(N, dtype=torch.float64, device=device))
    dense = nn.Parameter(packed.detach().to_dense())
    dense.register_hook(lambda g: project(cls, g))
    return packed, dense


def loss(w: Tensor, x: Tensor, target: Tensor) -> Tensor:
    return (x @ w - target).square().mean() + 0.01 * (w @ x.mT).square().mean()


def data(device: str) -> tuple[Tensor, Tensor]:
    return tuple(torch.randn(7, N, dtype=torch.float64, device=device) for _ in range(2))


def assert_twins(packed: PackedTensor, dense: Tensor, cls: type) -> None:
    assert type(packed) is cls and type(packed.grad) is cls
    torch.testing.assert_close(packed.detach().to_dense(), dense.detach())
    torch.testing.assert_close(packed.grad.to_dense(), dense.grad)


@pytest.mark.parametrize(
    ("name", "mode"), MODES, ids=[f"{n}-{next(iter(m))}={next(iter(m.values()))}" for n, m in MODES]
)
@each_type
def test_optimizers_match_a_dense_reference(cls, name, mode, device):
    if name.startswith("adagrad") and mode == {"fused": True} and device == "cuda":
        pytest.skip("torch has no fused Adagrad on CUDA")
    kind, options = OPTIMIZERS[name]
    (packed, dense), (x, y) = twins(cls, device), data(device)
    bias = [nn.Parameter(torch.zeros(N, dtype=torch.float64, device=device)) for _ in range(2)]
    pairs = list(zip((packed, dense), bias, strict=True))
    optimizers = [kind(list(pair), **options, **mode) for pair in pairs]
    for _ in range(5):
        for (w, b), optimizer in zip(pairs, optimizers, strict=True):
            optimizer.zero_grad()
            loss(w, x, y - b).backward()
            optimizer.step()
    # Where the gradient is zero so is Adam's dense state, so that nothing leaves the structure.
    assert_twins(packed, dense, cls)
    torch.testing.assert_close(bias[0], bias[1])
    state = [v for v in optimizers[0].state[packed].values() if v.dim() > 0]
    assert all(type(v) is cls for v in state)
    assert name == "sgd" or state
    again = kind(list(pairs[0]), **options, **mode)
    again.load_state_dict(optimizers[0].state_dict())


def check_steps(cls: type, device: str, make: Callable[[Tensor], torch.optim.Optimizer]) -> None:
    """An optimizer of one parameter takes the steps that it takes for the dense twin."""
    (packed, dense), (x, y) = twins(cls, device), data(device)
    optimizers = [make(w) for w in (packed, dense)]
    for _ in range(5):
        for w, optimizer in zip((packed, dense), optimizers, strict=True):
            optimizer.zero_grad()
            loss(w, x, y).backward()
            optimizer.step()
    assert_twins(packed, dense, cls)


@pytest.mark.parametrize("options", [{}, {"foreach": False, "weight_decay": 0.1}], ids=str)
@each_type
def test_adafactor(cls, options, device):
    """Its state is of rows and columns, and its updates are dense."""
    check_steps(cls, device, lambda w: torch.optim.Adafactor([w], lr=0.05, **options))


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("cls", MIRRORED)
def test_rprop(cls, foreach, device):
    check_steps(cls, device, lambda w: torch.optim.Rprop([w], lr=0.05, foreach=foreach))
    weight = cls.randn(2, 3, dtype=torch.float64, device=device)
    packed, dense = nn.Parameter(weight), nn.Parameter(weight.to_dense())
    for w in (packed, dense):
        optimizer = torch.optim.Rprop([w], lr=0.05, foreach=foreach)
        for _ in range(5):
            optimizer.zero_grad()
            (w @ w).square().sum().backward()
            optimizer.step()
    assert_twins(packed, dense, cls)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
@each_type
def test_complex_parameters_are_for_sgd(cls, name, foreach, device):
    """The others raise; that AdamW has applied its weight decay in its loop is documented."""
    weight = nn.Parameter(cls.randn(N, dtype=torch.complex128, device=device))
    before = weight.detach().clone()
    kind, options = OPTIMIZERS[name]
    (weight @ torch.ones(N, dtype=weight.dtype, device=device)).abs().square().sum().backward()
    optimizer = kind([weight], **options, foreach=foreach)
    if kind is torch.optim.SGD:
        optimizer.step()
        return
    with pytest.raises(NotImplementedError, match=f"view_as_real.*{cls.__name__}"):
        optimizer.step()
    changed = not torch.equal(weight.detach(), before)
    assert changed == (name == "adamw" and not foreach)


@each_type
def test_the_state_of_adagrad_is_no_other_full_like(cls):
    """A closure that the optimizer calls, say, gets the constant matrix that it asks for."""
    weight, seen = nn.Parameter(cls.eye(3)), []
    optimizer = torch.optim.Adagrad([weight], initial_accumulator_value=0.1)

    def closure():
        seen.append(torch.full_like(weight, 0.1))
        value = (weight @ torch.ones(3)).sum()
        value.backward()
        return value

    optimizer.step(closure)
    assert torch.equal(seen[0].to_dense(), torch.full((3, 3), 0.1))


@each_type
def test_fused_steps_check_their_lists(cls):
    """What is stored where would not correspond, and what has been written could not be undone."""
    other = next(c for c in TYPES if c is not cls)
    # The third matrix is wrong: torch's loop over the lists would have changed two by then.
    lists = {"params": 1.0, "grads": 2.0, "sums": 3.0}
    for name in lists:
        for wrong in (torch.ones(3, 3), torch.ones(6), cls.eye(4), other.eye(3)):
            made = {k: [cls.eye(3).mul_(v) for _ in range(3)] for k, v in lists.items()}
            made[name][2] = wrong
            before = [t.to_dense().clone() for ts in made.values() for t in ts]
            steps = [torch.tensor(1.0) for _ in range(3)]
            with pytest.raises(NotImplementedError, match=rf"_fused_adagrad_.*{cls.__name__}"):
                torch._fused_adagrad_(
                    *made.values(), steps, lr=0.1, lr_decay=0.0, weight_decay=0.0, eps=1e-10,
                    maximize=False,
                )  # fmt: skip
            after = [t.to_dense() for ts in made.values() for t in ts]
            assert all(map(torch.equal, after, before))


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@each_type
def test_gradient_clipping(cls, norm_type, foreach, device):
    (packed, dense), (x, y) = twins(cls, device), data(device)
    for w in (packed, dense):
        loss(w, x, y).backward()
    norms = [
        nn.utils.clip_grad_norm_([w], 0.1, norm_type, foreach=foreach) for w in (packed, dense)
    ]
    torch.testing.assert_close(*norms)
    assert_twins(packed, dense, cls)
    for w in (packed, dense):
        nn.utils.clip_grad_value_([w], 0.01, foreach=foreach)
    assert_twins(packed, dense, cls)


@pytest.mark.parametrize("mode", [{"foreach": False}, {"foreach": True}, {"fused": True}])
@each_type
def test_gradient_scaling(cls, mode, device):
    (packed, dense), (x, y) = twins(cls, device), data(device)
    for w in (packed, dense):
        optimizer = torch.optim.Adam([w], lr=0.1, **mode)
        scaler = torch.amp.GradScaler(device, init_scale=16.0, growth_interval=2)
        for step in range(4):
            optimizer.zero_grad()
            value = loss(w, x, y)
            # An overflow makes the scaler skip a step.
            scaler.scale(value * (torch.inf if step == 1 else 1)).backward()
            if step == 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_([w], 0.5)
            scaler.step(optimizer)
            scaler.update()
    assert_twins(packed, dense, cls)


@each_type
def test_training_a_plain_packed_vector(cls, device):
    """n(n+1)/2 plain parameters behind a type built in every forward pass."""
    w, (x, y) = nn.Parameter(cls.randn(N, dtype=torch.float64, device=device).packed), data(device)
    start = loss(cls(w), x, y).item()
    optimizer = torch.optim.Adam([w], lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        loss(cls(w), x, y).backward()
        optimizer.step()
    assert loss(cls(w), x, y).item() < 0.7 * start


@each_type
def test_initializers(cls, device):
    w = nn.Parameter(cls.zeros(20, device=device))
    for init, low, high in (
        (lambda: nn.init.uniform_(w, 1.0, 2.0), 1, 2),
        (lambda: nn.init.normal_(w, 50.0, 1.0), 40, 60),
        (lambda: nn.init.constant_(w, 3.0), 3, 3),
        (lambda: nn.init.zeros_(w), 0, 0),
        (lambda: nn.init.kaiming_uniform_(w, nonlinearity="relu"), -(0.3**0.5), 0.3**0.5),
    ):
        assert init() is w
        assert low <= w.packed.min() and w.packed.max() <= high
    assert w.requires_grad and w.packed.any()


@each_type
def test_identity_initializer(cls, device):
    w = nn.Parameter(cls.randn(4, dtype=torch.float64, device=device))
    assert nn.init.eye_(w) is w and w.requires_grad
    assert torch.equal(w.detach(), cls.eye(4, dtype=torch.float64, device=device))
    assert torch.eye(4, out=w.detach().zero_(), dtype=torch.float64).trace() == 4
    for size, options in (((3,), {}), ((4, 3), {}), ((4,), {"dtype": torch.float32})):
        with pytest.raises(ValueError, match=rf"\[eye\].*{cls.__name__} \(4, 4\)"):
            torch.eye(*size, out=w.detach(), **options)


@each_type
@pytest.mark.filterwarnings("ignore:mean is more than 2 std")
def test_truncated_normal_initializer(cls, device):
    """Torch of today chooses by dense masks, and asks for what may be no element of a type."""
    w = nn.Parameter(cls.zeros(30, device=device))
    for low, high in ((-1.0, 1.0), (0.5, 4.0), (2.5, 3.0)):
        if "where" in nn.init._no_grad_trunc_normal_.__code__.co_names:
            with pytest.raises(NotImplementedError, match=rf"trunc_normal_\].*{cls.__name__}"):
                nn.init.trunc_normal_(w, a=low, b=high)
            assert not w.packed.any()
            w_packed = nn.init.trunc_normal_(w.packed, a=low, b=high)
            assert torch.equal(w.packed, w_packed)
        else:
            nn.init.trunc_normal_(w, a=low, b=high)
        assert low <= w.packed.min() and w.packed.max() <= high
        with torch.no_grad():
            w.zero_()


def test_a_stale_saved_tensor_is_noticed(device):
    """In-place changes reach the version of the inner tensor, which is what backward has saved."""
    options = {"dtype": torch.complex64, "device": device}
    a = LowerTriangular.randn(3, requires_grad=True, **options)
    b = LowerTriangular.randn(3, **options)
    for change in (
        lambda: b.mul_(2),
        lambda: b.mT.add_(b.mT),
        lambda: b.conj().mul_(2),
        lambda: b.detach().zero_(),
        lambda: torch._foreach_mul_([b], 2.0),
        lambda: b.packed.zero_(),
        lambda: b.copy_(a.detach()),
    ):
        out = (a @ b).to_dense().abs().sum()
        change()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


def test_inference_mode(device):
    a = LowerTriangular.randn(3, device=device)
    with torch.inference_mode():
        b = a @ a
        b.mul_(2)
        assert type(b) is LowerTriangular
    torch.testing.assert_close(b.to_dense(), 2 * (a @ a).to_dense())


@pytest.mark.parametrize("cls", [LowerTriangular, Symmetric])
@pytest.mark.parametrize("foreach", [False, True])
def test_training_under_a_mode_that_watches_ops(cls, foreach, device):
    """Ops that reach the types from a mode are passed on, and change nothing."""
    start = cls.randn(4, device=device)
    x = torch.ones(4, device=device)
    results = []
    for mode in (KeepsResults(), contextlib.nullcontext()):
        w = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.Adam([w], foreach=foreach)
        for _ in range(3):
            optimizer.zero_grad()
            with mode:
                (w @ x).square().sum().backward()
                (w.packed.square().sum() + (w @ w.mT @ x).sum()).backward()
                optimizer.step()
        results.append(w.detach().packed)
    torch.testing.assert_close(*results, rtol=0, atol=0)
