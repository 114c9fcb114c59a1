# SPDX-License-Identifier: Apache-2.0
"""A minimal perfect hash over a fixed set of names: bucket by one hash, place by a second."""

MASK = 0xFFFFFFFF


def hash_name(name, seed):
    """FNV-1a over the bytes with a final mix; proc_address.cc repeats these lines."""
    value = (0x811C9DC5 ^ seed) & MASK
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) & MASK
    value ^= value >> 15
    return (value * 0x2C1B3C6D) & MASK


def build(names):
    """(seeds, order): slot of a name = hash(name, seeds[hash(name, 0) % len]) % len(names)."""
    count = len(names)
    bucket_count = max(1, count // 2)
    buckets = [[] for _ in range(bucket_count)]
    for name in names:
        buckets[hash_name(name, 0) % bucket_count].append(name)
    seeds = [0] * bucket_count
    order = [None] * count
    for index in sorted(range(bucket_count), key=lambda i: -len(buckets[i])):
        for seed in range(1, 1 << 16):
            slots = [hash_name(name, seed) % count for name in buckets[index]]
            if len(set(slots)) == len(slots) and all(order[slot] is None for slot in slots):
                break
        else:
            raise RuntimeError("no seed places every name of a bucket")
        seeds[index] = seed
        for name, slot in zip(buckets[index], slots):
            order[slot] = name
    return seeds, order
