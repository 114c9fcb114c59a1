# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory statistics, and errors when memory is exhausted. GPU only. Other processes may use the
device meanwhile, so free memory is compared with a tolerance."""

import gc

import torch

from harness import need_cuda, test

MIB = 1 << 20


def fresh():
    """Empties the cache and resets the peaks."""
    need_cuda()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


@test
def allocated():
    fresh()
    before = torch.cuda.memory_allocated()
    x = block(20)
    assert torch.cuda.memory_allocated() - before == 20 * MIB
    del x
    assert torch.cuda.memory_allocated() == before


@test
def rounded_to_512():
    fresh()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1, device="cuda")
    assert torch.cuda.memory_allocated() - before == 512
    del x


@test
def reserved_and_cached():
    fresh()
    x = block(64)
    reserved = torch.cuda.memory_reserved()
    assert reserved >= 64 * MIB
    address = x.data_ptr()
    del x
    assert torch.cuda.memory_reserved() == reserved, "the cache keeps the block"
    x = block(64)
    assert x.data_ptr() == address, "the cached block is used again"
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < reserved


@test
def peak():
    fresh()
    before = torch.cuda.memory_allocated()
    x, y = block(30), block(30)
    del x, y
    assert torch.cuda.max_memory_allocated() - before == 60 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before


@test
def statistics():
    fresh()
    stats = torch.cuda.memory_stats()
    x = block(5)
    now = torch.cuda.memory_stats()
    assert now["allocation.all.allocated"] == stats["allocation.all.allocated"] + 1
    assert now["allocated_bytes.all.current"] == stats["allocated_bytes.all.current"] + 5 * MIB
    assert "Allocated memory" in torch.cuda.memory_summary()
    del x


@test
def snapshot():
    fresh()
    x = block(8)
    segments = torch.cuda.memory_snapshot()
    inside = [s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    assert len(inside) == 1, segments


@test
def mem_get_info():
    """Free memory falls by what is allocated; the total is the device's."""
    fresh()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    x = block(4096)
    now, _ = torch.cuda.mem_get_info()
    # Half of the allocation, since other processes may have freed some memory meanwhile.
    assert now < free - 2048 * MIB, f"{free} and then {now}"
    del x


@test
def out_of_memory():
    fresh()
    total = torch.cuda.mem_get_info()[1]
    ooms = torch.cuda.memory_stats()["num_ooms"]
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    else:
        raise AssertionError("twice the device's memory was allocated")
    assert torch.cuda.memory_stats()["num_ooms"] == ooms + 1


@test
def recovery_after_out_of_memory():
    fresh()
    for _ in range(3):
        try:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            pass
        x = torch.ones(1000, device="cuda")
        assert float((x @ x).cpu()) == 1000
    torch.cuda.synchronize()


@test
def fraction():
    """The limit of memory that PyTorch itself enforces."""
    fresh()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2048 * MIB / total)
    try:
        x = block(1024)
        try:
            block(1500)
        except torch.cuda.OutOfMemoryError:
            pass
        else:
            raise AssertionError("the limit does not hold")
        del x
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    block(2500)


@test
def contents_survive():
    """Many blocks of many sizes keep their contents while others are freed in another order."""
    fresh()
    kept = {}
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1)).tolist()
    for i in range(300):
        kept[i] = torch.full((1 + (i * 7919) % 100_000,), i, dtype=torch.int32, device="cuda")
        if i % 2:
            kept.pop(order[i], None)
    assert all(bool((x == i).all()) for i, x in kept.items())


@test
def alignment():
    fresh()
    for count in (1, 3, 1000, 70_001):
        assert torch.empty(count, dtype=torch.uint8, device="cuda").data_ptr() % 256 == 0


@test
def private_pool():
    fresh()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(MIB, device="cuda")
    assert float(x.sum()) == MIB
    del x, pool


@test
def host_views():
    """DLPack and the array interface carry the device's address."""
    need_cuda()
    x = torch.arange(100, device="cuda")
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.data_ptr() == x.data_ptr() == x.__cuda_array_interface__["data"][0]
    y += 1
    assert int(x[0]) == 1


@test
def storage_resize():
    fresh()
    x = torch.ones(1000, device="cuda")
    x.untyped_storage().resize_(8000)
    assert x.untyped_storage().nbytes() == 8000 and float(x.sum()) == 1000


@test
def saved_and_loaded():
    import io
    need_cuda()
    x = torch.arange(1000, device="cuda")
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file)["x"]
    assert loaded.is_cuda and torch.equal(loaded, x)
