# SPDX-License-Identifier: Apache-2.0
"""Streams and events, pinned memory, and copies that do not wait. GPU only."""

import threading

import torch

from harness import Skip, need_cuda, test

COUNT = 1 << 20


def slow(x, rounds=50):
    for _ in range(rounds):
        x = torch.sin(x) + 1
    return x


def gpu_test(function):
    def checked():
        need_cuda()
        return function()
    checked.__name__ = function.__name__
    return test(checked)


@gpu_test
def wait_stream():
    x = torch.ones(COUNT, device="cuda")
    side = torch.cuda.Stream()
    y = slow(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        z = y * 2
    torch.cuda.current_stream().wait_stream(side)
    torch.testing.assert_close(z, y * 2)


@gpu_test
def event_orders_streams():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(COUNT, device="cuda")
    torch.cuda.synchronize()
    for i in range(20):
        done = torch.cuda.Event()
        with torch.cuda.stream(first):
            x.fill_(float(i))
            done.record()
        second.wait_event(done)
        with torch.cuda.stream(second):
            total = x.sum()
            back = second.record_event()
            value = float(total)  # read on the stream that computed it, so no other stream waits for it
        first.wait_event(back)
        assert value == float(i) * COUNT, f"round {i}"


@gpu_test
def elapsed_time():
    begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    x = torch.ones(COUNT, device="cuda")
    begin.record()
    x = slow(x)
    middle.record()
    slow(x, 200)
    end.record()
    end.synchronize()
    short, long = begin.elapsed_time(middle), middle.elapsed_time(end)
    assert short >= 0 and long > 0 and begin.elapsed_time(end) >= long, f"{short} ms, {long} ms"


@gpu_test
def event_query():
    event = torch.cuda.Event()
    assert event.query(), "an event that was never recorded is complete"
    slow(torch.ones(COUNT, device="cuda"), 20)
    event.record()
    event.synchronize()
    assert event.query()


@gpu_test
def stream_query():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        slow(torch.ones(COUNT, device="cuda"), 20)
    stream.synchronize()
    assert stream.query()


@gpu_test
def priorities():
    high, low = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=0)
    assert high.priority < low.priority, f"{high.priority} and {low.priority}"
    with torch.cuda.stream(high):
        a = slow(torch.ones(1000, device="cuda"))
    with torch.cuda.stream(low):
        b = slow(torch.ones(1000, device="cuda"))
    torch.cuda.synchronize()
    assert torch.equal(a, b)


@gpu_test
def current_stream():
    default, side = torch.cuda.default_stream(), torch.cuda.Stream()
    assert torch.cuda.current_stream() == default and default.cuda_stream == 0
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        with torch.cuda.stream(default):
            assert torch.cuda.current_stream() == default
    assert torch.cuda.current_stream() == default and side.cuda_stream != 0


@gpu_test
def eight_streams():
    """Independent work on eight streams; one synchronisation waits for all of it."""
    streams = [torch.cuda.Stream() for _ in range(8)]
    outputs = []
    for i, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            outputs.append(slow(torch.full((COUNT,), float(i), device="cuda"), 20).sum())
    torch.cuda.synchronize()
    values = [float(o) for o in outputs]
    assert all(v == v and v > 0 for v in values), values
    return [v.hex() for v in values]


@gpu_test
def external_stream():
    side = torch.cuda.Stream()
    outside = torch.cuda.ExternalStream(side.cuda_stream)
    with torch.cuda.stream(outside):
        x = torch.ones(100, device="cuda") * 3
    outside.synchronize()
    assert float(x.sum()) == 300


@gpu_test
def record_stream():
    """A block in use on another stream is not reused before that stream's work has ended."""
    side = torch.cuda.Stream()
    for i in range(20):
        x = torch.full((COUNT,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = slow(x * 0, 5).sum() * 0 + x.sum()
        x.record_stream(side)
        del x
        torch.full((COUNT,), -1.0, device="cuda")
        side.synchronize()
        assert float(total) == float(i) * COUNT


@gpu_test
def threads_with_streams():
    results = {}

    def work(i):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((10_000,), float(i), device="cuda")
            for _ in range(50):
                x = x + 1
            stream.synchronize()
            results[i] = float(x[0])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: i + 50.0 for i in range(8)}, results


@gpu_test
def backward_on_a_side_stream():
    side = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (x * x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    assert bool((x.grad == 2).all())


@gpu_test
def pinned_memory():
    host = torch.arange(COUNT, dtype=torch.float32).pin_memory()
    assert host.is_pinned() and not torch.zeros(5).is_pinned()
    device = host.to("cuda", non_blocking=True)
    back = torch.empty(COUNT, pin_memory=True)
    back.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, host)


@gpu_test
def pinned_copies_on_streams():
    host = [torch.full((COUNT,), float(i)).pin_memory() for i in range(6)]
    streams = [torch.cuda.Stream() for _ in host]
    back = [torch.empty(COUNT, pin_memory=True) for _ in host]
    for source, stream, target in zip(host, streams, back):
        with torch.cuda.stream(stream):
            target.copy_(source.to("cuda", non_blocking=True) * 2, non_blocking=True)
    torch.cuda.synchronize()
    assert [float(t[-1]) for t in back] == [2.0 * i for i in range(6)]


@gpu_test
def pinned_block_is_kept_while_copied():
    """A freed pinned block waits for the copy that reads it."""
    for i in range(20):
        host = torch.full((COUNT,), float(i)).pin_memory()
        device = host.to("cuda", non_blocking=True)
        del host
        torch.full((COUNT,), -1.0).pin_memory()
        assert float(device[-1]) == float(i)


@gpu_test
def pageable_copies():
    for count in (1, 1000, COUNT * 4):
        host = torch.arange(count, dtype=torch.float32)
        assert torch.equal(host.cuda().cpu(), host)
    strided = torch.arange(10_000, dtype=torch.float32).reshape(100, 100)[::2, ::3]
    assert torch.equal(strided.cuda().cpu(), strided)


@gpu_test
def copies_wait_for_work():
    x = slow(torch.ones(COUNT, device="cuda"), 100)
    first = x.cpu()
    assert torch.equal(first, x.cpu())


@gpu_test
def sleep_and_host():
    """The host is free while the device works."""
    event = torch.cuda.Event()
    torch.cuda._sleep(200_000_000)  # a tenth of a second
    event.record()
    before = event.query()
    event.synchronize()
    assert not before and event.query()


@gpu_test
def green_context():
    """A product on a part of the SMs, and then on all of them."""
    try:
        from torch.cuda.green_contexts import GreenContext
    except ImportError:
        raise Skip("this PyTorch has no green contexts") from None
    x = torch.ones(512, 512, device="cuda")
    part = GreenContext.create(16, 0)
    part.set_context()
    y = x @ x
    torch.cuda.synchronize()
    part.pop_context()
    assert bool((y == 512).all()) and bool((x @ y == 512 * 512).all())


@gpu_test
def device_properties():
    properties = torch.cuda.get_device_properties(0)
    assert properties.multi_processor_count > 0 and properties.total_memory > 0
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    assert torch.cuda.is_available() and torch.cuda.current_device() == 0
    return [torch.cuda.get_device_name(), properties.multi_processor_count, properties.total_memory,
            properties.major, properties.minor]


@gpu_test
def uuid_is_the_same():
    properties = torch.cuda.get_device_properties(0)
    return str(getattr(properties, "uuid", "none"))
