# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: capture, replay, shared pools, capture errors, graphed callables. GPU only."""

import torch
import torch.nn.functional as F
from torch import nn

from harness import need_cuda, test


def gpu_test(function):
    def checked():
        need_cuda()
        torch.cuda.synchronize()
        return function()
    checked.__name__ = function.__name__
    return test(checked)


def captured(function, **options):
    """(graph, what function returned), after a warm-up on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        result = function()
    return graph, result


@gpu_test
def replay_with_new_input():
    x = torch.zeros(1000, device="cuda")
    graph, y = captured(lambda: (x * 2 + 1).relu())
    for value in (1.0, -5.0, 7.0):
        x.fill_(value)
        graph.replay()
        assert bool((y == max(0.0, 2 * value + 1)).all()), value


@gpu_test
def matrix_products():
    a, b = torch.randn(128, 96, device="cuda"), torch.randn(96, 64, device="cuda")
    graph, y = captured(lambda: torch.relu(a @ b))
    a.normal_()
    graph.replay()
    torch.testing.assert_close(y, torch.relu(a @ b))


@gpu_test
def half_precision_layers():
    net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).cuda().half()
    x = torch.randn(16, 64, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        graph, y = captured(lambda: net(x))
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, net(x), rtol=1e-3, atol=1e-3)


@gpu_test
def convolutions():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).cuda()
    x = torch.randn(4, 3, 20, 20, device="cuda")
    with torch.no_grad():
        graph, y = captured(lambda: net(x))
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, net(x), rtol=1e-4, atol=1e-4)


@gpu_test
def many_replays():
    x = torch.zeros(100, device="cuda")

    def add():
        x.add_(1)

    graph, _ = captured(add)
    x.zero_()
    for _ in range(1000):
        graph.replay()
    assert float(x[0]) == 1000, float(x[0])


@gpu_test
def two_graphs_share_a_pool():
    x = torch.ones(1000, device="cuda")
    first, y = captured(lambda: x * 3)
    second, z = captured(lambda: y + 1, pool=first.pool())
    x.fill_(5)
    first.replay()
    second.replay()
    assert bool((z == 16).all())


@gpu_test
def replay_on_other_streams():
    x = torch.ones(1000, device="cuda")
    graph, y = captured(lambda: x + 1)
    for i in range(4):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x.fill_(float(i))
            graph.replay()
            total = y.sum()
        torch.cuda.current_stream().wait_stream(stream)
        assert float(total) == 1000 * (i + 1)


@gpu_test
def fork_and_join_inside():
    """Work on a second stream becomes a branch of the graph."""
    x = torch.ones(1000, device="cuda")
    side = torch.cuda.Stream()

    def branches():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            left = x * 2
        right = x * 3
        torch.cuda.current_stream().wait_stream(side)
        return left + right

    graph, y = captured(branches)
    x.fill_(4)
    graph.replay()
    assert bool((y == 20).all())


@gpu_test
def copies_and_fills_inside():
    x, target = torch.ones(1000, device="cuda"), torch.empty(1000, device="cuda")

    def work():
        target.zero_()
        target[:500].copy_(x[:500])
        return target.clone()

    graph, y = captured(work)
    x.fill_(9)
    graph.replay()
    assert float(y.sum()) == 4500


@gpu_test
def backward_inside():
    x = torch.ones(50, device="cuda", requires_grad=True)
    weight = torch.full((50,), 2.0, device="cuda")

    def work():
        x.grad = None
        ((x * weight) ** 2).sum().backward()
        return x.grad

    graph, gradient = captured(work)
    weight.fill_(3)
    graph.replay()
    assert bool((gradient == 18).all()), gradient[0]


@gpu_test
def graphed_callables():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    sample_input = torch.randn(16, 32, device="cuda")
    want_net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    want_net.load_state_dict(net.state_dict())
    graphed = torch.cuda.make_graphed_callables(net, (sample_input,))
    for _ in range(3):
        x = torch.randn(16, 32, device="cuda")
        losses = []
        for model in (graphed, want_net):
            model.zero_grad()  # the gradient of a graphed module is the graph's own buffer
            loss = F.mse_loss(model(x), torch.ones(16, 8, device="cuda"))
            loss.backward()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
        for mine, want in zip(net.parameters(), want_net.parameters()):
            torch.testing.assert_close(mine.grad, want.grad, rtol=1e-4, atol=1e-5)


@gpu_test
def is_capturing():
    assert not torch.cuda.is_current_stream_capturing()
    seen = []
    x = torch.ones(10, device="cuda")

    def work():
        seen.append(torch.cuda.is_current_stream_capturing())
        return x + 1

    captured(work)
    assert seen == [False, False, True], seen


@gpu_test
def reset_and_again():
    x = torch.ones(1000, device="cuda")
    for i in range(5):
        graph, y = captured(lambda n=i: x * n)
        graph.replay()
        assert float(y.sum()) == 1000 * i
        graph.reset()


@gpu_test
def large_graph():
    """A thousand kernels in one graph."""
    x = torch.zeros(64, device="cuda")

    def work():
        y = x
        for _ in range(1000):
            y = y + 1
        return y

    graph, y = captured(work)
    x.fill_(5)
    graph.replay()
    assert float(y[0]) == 1005


@gpu_test
def memory_of_a_graph_stays():
    """The graph's output keeps its address and contents while others allocate."""
    x = torch.ones(1 << 20, device="cuda")
    graph, y = captured(lambda: x * 2)
    address = y.data_ptr()
    graph.replay()
    noise = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    assert y.data_ptr() == address and bool((y == 2).all()) and len(noise) == 8


@gpu_test
def sorting_inside():
    x = torch.randn(5000, device="cuda")
    graph, y = captured(lambda: torch.sort(x).values)
    x.normal_()
    graph.replay()
    assert torch.equal(y, torch.sort(x).values)


@gpu_test
def synchronising_call_is_refused():
    """A call that is forbidden during a capture raises, and the device can be used afterwards."""
    x = torch.ones(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            float(x.sum())
    except RuntimeError as error:
        assert "captur" in str(error).lower(), error
    else:
        raise AssertionError("item() was captured")
    torch.cuda.synchronize()
    assert float(x.sum()) == 10
