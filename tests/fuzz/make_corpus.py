# SPDX-License-Identifier: Apache-2.0
"""Writes the binary seeds of the fuzz targets: corpus/session, corpus/message and corpus/fatbin.

usage: python3 tests/fuzz/make_corpus.py     (after a change of the wire format or of a layout)

Layouts are those of src/wire/{commands,handshake}.h and docs/interop.md. The text seeds (command,
ptx, kernel) are written by hand.
"""
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"

# src/wire/layout.h
WINDOW_BYTES = 256 << 30
DEVICE_BYTES = 192 << 30
BASE = 0x1100_0000_0000 + 3 * WINDOW_BYTES  # session_fuzz.cc runs in window 3
HOST = BASE + DEVICE_BYTES
STAGING = HOST + (6 << 20)
PINNED = HOST + (32 << 20)
MIB = 1 << 20


def write(target, name, data):
    (CORPUS / target).mkdir(exist_ok=True)
    (CORPUS / target / name).write_bytes(data)


def command(opcode, layout, *values, more=b""):
    body = struct.pack("<" + layout, *values) + more
    return struct.pack("<HH", opcode, len(body)) + body


def stream(stream_id, kind=1):
    return command(8, "IIIIiI", stream_id, 1, 0, kind, 0, 0)


def event(event_id):
    return command(10, "IIII", event_id, 0, 0, 0)


def session_seeds():
    module = (command(19, "IIQ", 1, 0, 8) + command(20, "IIQQ", 1, 8, 0, STAGING)
              + command(21, "IIIIIIIIQ", 1, 1, 0, 0, 4000, 1, 0, 0, 32)
              + command(23, "IIII", 1, 1, 0, 4, more=b"kern"))
    yield "ping", command(1, "Q", 0)
    yield "memory", (stream(1) + command(15, "QQII", BASE, 4 * MIB, 0, 0)
                     + command(3, "IIQQQ", 1, 1, BASE + 64, STAGING, 4096)
                     + command(4, "IIQQQQQQQQQ", 1, 0, BASE, PINNED, 512, 256, 4096, 2048, 200, 8, 2)
                     + command(5, "IIQQQQII", 1, 4, BASE, 1024, 16, 4, 7, 0)
                     + command(17, "QQII", PINNED, 2 * MIB, 0, 0)
                     + command(26, "II", 0, 0)
                     + command(18, "QQII", PINNED, 2 * MIB, 0, 0)
                     + command(16, "QQII", BASE, 4 * MIB, 0, 0))
    yield "events", (stream(1) + stream(2, 0) + event(1) + event(2)
                     + command(12, "IIIIQ", 1, 1, 3, 0, 5) + command(13, "IIII", 2, 1, 0, 0)
                     + command(12, "IIIIQ", 2, 2, 0xffffffff, 0, 0) + command(14, "II", 1, 2)
                     + command(6, "IIQ", 1, 4, 9) + command(7, "II", 2, 0)
                     + command(25, "II", 1, 3) + command(11, "II", 1, 0) + command(9, "II", 1, 0)
                     + command(40, "II", 1, 0))
    yield "launch", (stream(1) + module
                     + command(2, "12I", 1, 1, 2, 1, 1, 32, 1, 1, 0, 0, 16, 0, more=bytes(16))
                     + command(2, "12I", 1, 1, 2, 1, 1, 32, 1, 1, 0, 1, 16, 1,
                               more=struct.pack("<IIQ", 8, 0, 3).ljust(72, b"\0") + bytes(16))
                     + command(36, "IIiI", 1, 8, 4096, 0) + command(37, "IIiI", 1, 0, 0, 0)
                     + command(38, "IiQII", 1, 128, 0, 0, 0) + command(39, "II", 1, 0)
                     + command(22, "II", 1, 0))
    yield "library", (command(19, "IIQ", 2, 0, 4) + command(20, "IIQQ", 2, 4, 0, STAGING + 64)
                      + command(21, "IIIIII", 2, 2, 0, 1, 0, 0)
                      + command(23, "IIII", 2, 5, 1, 4, more=b"kern")
                      + command(24, "IIII", 2, 6, 1, 4, more=b"glob")
                      + stream(1)
                      + command(3, "IIQQQ", 1, 0, 0x7f00_0000_0000, STAGING, 256))
    launch = struct.pack("<12I", 0, 1, 2, 1, 1, 32, 1, 1, 0, 0, 16, 0) + bytes(16)
    copy = struct.pack("<II9Q", 0, 0, STAGING, STAGING + 4096, 0, 0, 0, 0, 64, 1, 1)
    fill = struct.pack("<IIQQQQII", 0, 4, STAGING, 0, 16, 1, 7, 0)
    value = struct.pack("<IIQQIIII", 0, 4, STAGING + 8, 5, 0, 0, 1, 0)
    edge = struct.pack("<IBBBB", 0, 0, 0, 0, 0)
    nodes = [(1, b"", launch), (2, edge, copy), (3, edge, fill), (4, edge, struct.pack("<II", 0, 7)),
             (5, edge, struct.pack("<II", 1, 0)), (6, edge, struct.pack("<II", 1, 0)),
             (7, edge, value), (0, edge, b"")]
    described = command(29, "II", 1, 0) + b"".join(
        command(30, "IIII", 1, kind, len(edges) // 8, len(body), more=edges + body)
        for kind, edges, body in nodes)
    yield "graph", (stream(1) + event(1) + module + described + command(31, "IIQ", 1, 0, 0)
                    + command(35, "II", 1, 1) + command(32, "II", 1, 1)
                    + command(48, "IIII", 1, 2, 3, len(fill), more=fill)
                    + command(49, "IIII", 1, 0, 0, 0) + described + command(33, "II", 1, 0)
                    + command(32, "II", 1, 1) + command(34, "II", 1, 0))
    yield "values", (stream(1) + command(27, "IIQQII", 1, 4, STAGING + 8, 5, 0, 0)
                     + command(28, "IIQQII", 1, 8, STAGING + 16, 5, 0, 0))
    for opcode in (256, 270, 300, 350):
        yield f"generated_{opcode}", command(opcode, "IIII", 1, 0, 16, 0, more=bytes(16))


def message(kind, body, version=1):
    return struct.pack("<4sIII", b"OMPS", version, kind, 16 + len(body)) + body


def hello(percentage, limit, devices=b"\x010", name=b"./nbody 4096"):
    return message(1, struct.pack("<IIfI", 4711, 0xffffffff, percentage, 1) + struct.pack("<Q", limit)
                   + bytes(120) + devices.ljust(256, b"\0") + name.ljust(256, b"\0"))


def message_seeds():
    yield "hello", hello(25.0, 1 << 28)
    yield "hello_uuid", hello(0.0, 0, b"\x01GPU-118cbaa3,0")
    yield "hello_unterminated", hello(float("nan"), 1 << 63, b"\x01" + b"9" * 255, b"\x1b[2J\n" * 60)
    yield "admit", message(10, struct.pack("<IIIIfI", 1, 0, 0, 0, 100.0, 0) + bytes(128) + hello(1.0, 1))
    yield "query", message(12, struct.pack("<II", 1, 7))
    yield "query_devices", message(12, struct.pack("<II", 2, 7))
    yield "query_unknown", message(12, struct.pack("<II", 9, 7))
    yield "shutdown", message(14, struct.pack("<II", 1, 0))
    yield "fault", message(25, struct.pack("<II", 3, 700) + b"a kernel faulted\n".ljust(256, b"x"))
    yield "other_version", message(1, bytes(16), 2)
    yield "no_header", b"OMPS"
    yield "devices", b"0000:00:06.0\tGPU-008cbaa3\tNVIDIA H200\n\t\t\n0000:00:07.0\tGPU"


PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n\0"


def entry(payload, target=70, kind=1, flags=0, compressed=0, text=0):
    padded = payload + bytes(-len(payload) % 8)
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), compressed, 0, 7, 0, target,
                       64, 0, flags, 0, text) + padded


def container(*entries, claim=None):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(body) if claim is None else claim) + body


def lz4_literals(text):
    """One LZ4 sequence of literals alone."""
    rest = len(text) - 15
    return b"\xf0" + b"\xff" * (rest // 255) + bytes([rest % 255]) + text


def zstd_raw(text):
    """A zstd frame of one raw block: magic, single segment with a one-byte size, last block."""
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(text)]) + struct.pack("<I", len(text) << 3 | 1)[:3] + text


def fatbin_seeds():
    lz4, zstd = lz4_literals(PTX), zstd_raw(PTX)
    plain = entry(PTX)
    yield "plain", container(plain)
    yield "two", container(entry(PTX, 80), entry(PTX, 100), entry(b"\x7fELF" + bytes(60), 90, kind=2))
    yield "lz4", container(entry(lz4, flags=0x2000, compressed=len(lz4), text=len(PTX)))
    yield "zstd", container(entry(zstd, flags=0x8000, compressed=len(zstd), text=len(PTX)))
    yield "zstd_short", container(entry(zstd, flags=0x8000, compressed=len(zstd), text=4))
    yield "lz4_huge", container(entry(lz4, flags=0x2000, compressed=len(lz4), text=1 << 62))
    yield "family", container(entry(PTX), entry(PTX.replace(b"sm_70", b"sm_90a"), 90))
    yield "cut", container(plain)[:-20]
    yield "long_body", container(plain, claim=1 << 63)
    yield "empty_body", container()
    yield "text", PTX
    yield "cubin", b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + struct.pack("<H", 190) + bytes(44)
    yield "rubbish", bytes(range(64))
    yield "one_byte", b"."


def main():
    for target, seeds in (("session", session_seeds()), ("message", message_seeds()),
                          ("fatbin", fatbin_seeds())):
        for name, data in seeds:
            write(target, name, data)


if __name__ == "__main__":
    main()
