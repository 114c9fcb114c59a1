# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets that are generated: corpus/session, corpus/message,
corpus/fatbin, and the instructions in corpus/ptx.

usage: python3 tests/fuzz/make_corpus.py     (after a change of the wire format, of a layout, or of
                                              the table of PTX instructions)

Layouts are those of api/commands, src/wire/handshake.h and docs/interop.md. The other seeds are
written by hand, or are inputs with which a target once failed.
"""
import pathlib
import struct

import ptx_corpus
import session_corpus

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, data):
    (CORPUS / target).mkdir(exist_ok=True)
    (CORPUS / target / name).write_bytes(data)


def message(kind, body, version=4):
    return struct.pack("<4sIII", b"OMPS", version, kind, 16 + len(body)) + body


def hello(percentage, limit, devices=b"\x010", name=b"./nbody 4096", quality=1, group=b"", partition=b"",
          domain=b""):
    return message(1, struct.pack("<IIIIQ", 4711, 1, quality, 0, 0) + client_limits(percentage, memory=limit)
                   + devices.ljust(256, b"\0") + name.ljust(256, b"\0") + group.ljust(72, b"\0")
                   + partition.ljust(96, b"\0") + domain.ljust(40, b"\0"))


def group_name(name):
    return name.ljust(384, b"\0")


def client_limits(percentage=100.0, priority=0xffffffff, sms=0, memory=0):
    return struct.pack("<fI16Q16IfIfI16Q", percentage, priority, memory, *[0] * 15, sms, *[0] * 15, 0.5, 1, 3.0, 2,
                       memory // 2, *[0] * 15)


def partition(device, sms, groups, lends=0, most=0):
    return struct.pack("<IIQQII", device, sms, groups, 0, lends, most)


def answer(query, rows, more=0):
    return struct.pack("<IIIIIIIIQQ", query, 7, 1, rows, more, 0, 0, 0, 1 << 30, 1 << 21)


def query(kind, session=0, limit=0, device=0, value=0.0, sms=0, lends=0, name=b"", by_id=0):
    return message(12, struct.pack("<IIIIIIdIIII", kind, 7, session, by_id, limit, device, value, sms, lends, 1, 0)
                   + group_name(name))


def message_seeds():
    yield "hello", hello(25.0, 1 << 28)
    yield "hello_quality", hello(25.0, 0, quality=0xffff)
    yield "hello_partition", hello(0.0, 0, partition=b"GPU-008cbaa3/1")
    yield "hello_domain", hello(0.0, 0, domain=b"a\x1b[2J")
    yield "hello_uuid", hello(0.0, 0, b"\x01GPU-118cbaa3,0")
    yield "hello_unterminated", hello(float("nan"), 1 << 63, b"\x01" + b"9" * 255, (b"\x1b[2J\n" * 60)[:256])
    yield "hello_group", hello(0.0, 0, group=b"train")
    admit = struct.pack("<IIII", 1, 0, 0, 0) + client_limits()
    no_group = group_name(b"") + client_limits()
    yield "admit", message(10, admit + no_group + partition(0, 0, 0) + hello(1.0, 1))
    yield "admit_partition", message(10, admit + no_group + partition(7, 16, 6, 1, 32) + hello(1.0, 1))
    yield "admit_group", message(10, admit + group_name(b"pods:/a\x1b[2J") + client_limits(25.0, 1, 8, 1 << 30)
                                 + partition(0, 0, 0) + hello(0.0, 0, group=b"x" * 72))
    yield "set_group", message(32, group_name(b"pods") + client_limits(50.0, 0, 0, 1 << 30) + struct.pack("<II", 1, 0))
    yield "query", query(1)
    yield "query_devices", query(2)
    yield "query_inspect", query(3, 1)
    yield "query_terminate", query(4, by_id=3)
    yield "query_partitions", query(7)
    yield "query_move", query(10, session=4711, name=b"quarantine")
    yield "query_unknown", query(9)
    yield "query_percentage", query(5, 4711, 0, value=12.5)
    yield "query_sms", query(5, 4711, 3, 1, 8)
    yield "query_memory", query(5, 4711, 2, 0, 1 << 30)
    yield "query_priority", query(5, 4711, 1, value=1)
    yield "query_reserve", query(8, sms=16, lends=1, name=b"./nbody")
    yield "query_group", query(5, 0, 2, 0, 1 << 30, name=b"train")
    yield "query_groups", query(6)
    yield "shutdown", message(14, struct.pack("<II", 1, 0))
    reason = b"a kernel faulted\n".ljust(256, b"x")
    yield "welcome", message(2, struct.pack("<IIQQII", 0, 1, 0, 0x1100_0000_0000, 4712, 20) + client_limits(50.0, 1)
                              + struct.pack("<II", 1, 0) + client_limits() + partition(0, 16, 6) + bytes(256))
    yield "ui_reply", message(4, struct.pack("<IIQ", 1, 0, 0) + b"no such command\n")
    yield "ui_reply_more", message(4, struct.pack("<IIQ", 0, 1, 0) + b"PID ID SERVER\n")
    yield "server_ready", message(11, struct.pack("<IIQ", 100, 4713, 0) + reason)
    row = (struct.pack("<IIIIIfIIIIII", 4711, 1, 0, 1, 0, 50.0, 1, 0, 12, 0, 2, 0) + b"it has arrays\x1b".ljust(120, b"\0")
           + b"GPU-118cbaa3".ljust(48, b"\0")
           + b"./nbody\x1b[2J".ljust(256, b"\0") + group_name(b"train\n") + struct.pack("<IIQ", 1, 1, 5) + bytes(1808))
    yield "answer", message(13, answer(1, 2) + row + row)
    yield "answer_more", message(13, answer(1, 1, 1) + row)
    row = struct.pack("<II", 1, 3) + group_name(b"pods:/a\x1b[2J") + client_limits(50.0, 1, 8, 1 << 30) + bytes(128)
    yield "answer_groups", message(13, answer(6, 2) + row + row)
    totals = struct.pack("<IIQ", 1, 1, 3) + group_name(b"pods:/a\x1b[2J") + struct.pack("<IIQ", 1, 1, 5) + b"\7" * 1864
    yield "answer_totals", message(13, answer(13, 2) + totals + totals)
    yield "query_totals", query(13)
    yield "totals", message(17, totals)
    yield "totals_forgotten", message(17, bytes(16) + totals[16:])
    yield "event", message(18, struct.pack("<IIIIQ", 2, 710, 4711, 3, 1 << 60) + b"./nbody\x1b[2J".ljust(256, b"\0")
                           + group_name(b"pods:/a\n") + b"common".ljust(32, b"\0") + reason)
    yield "event_unknown", message(18, struct.pack("<IIIIQ", 99, 0, 0, 0, 0) + bytes(256 + 384 + 32 + 256))
    yield "answer_devices", message(13, answer(2, 0)
                                    + b"0000:00:06.0\tGPU-008cbaa3\tNVIDIA\x1b H200\t132\t4096\t8\t120\n"
                                    + b"0000:00:07.0\tGPU-11\tB\n")
    yield "answer_partitions", message(13, answer(7, 0) + partition(0, 16, 6) + partition(16, 1, 1 << 63))
    yield "answer_partitions_cut", message(13, answer(7, 0) + partition(0, 16, 6)[1:])
    report = struct.pack("<IIIIIIQQIIIIQI", 4711, 1, 1, 806, 2, 0, 96, 12, 21, 1, 1, 3, 1500, 8)
    waits = b"".join(struct.pack("<IIIIQQQQ", kind, 2, 1, 1, 3, 4, 4096, 7) for kind in range(8))
    yield "answer_inspect", message(13, answer(3, 0) + report + struct.pack("<IIIQ", 9, 2, 1, 1000) + waits)
    yield "answer_inspect_short", message(13, answer(3, 0) + report + bytes(20) + waits[1:])
    yield "answer_rows", message(13, answer(1, 0xffffffff) + row)
    yield "shutdown_refused", message(15, struct.pack("<II", 3, 0))
    yield "rejoin", message(16, struct.pack("<Q", 0) + b"uid_0".ljust(72, b"\0"))
    yield "worker_ready", message(20, struct.pack("<IIQ", 0, 20, 0) + reason)
    grant = client_limits(50.0, 1) + struct.pack("<IIII", 0, 0, 3, 0)
    yield "open_session", message(21, struct.pack("<IIII", 1, 3, 4711, 0) + grant + client_limits(50.0)
                                  + b"./nbody".ljust(256, b"\0") + struct.pack("<II", 2, 0))
    yield "change_session", message(27, struct.pack("<II", 1, 0) + grant)
    yield "change_group", message(33, struct.pack("<II", 3, 0) + client_limits(12.5, 1, 8, 1 << 30))
    yield "reserve", message(28, struct.pack("<IIIIQQII", 1, 0, 8, 1, 0b11, 0, 16, 0))
    yield "reserved", message(29, struct.pack("<IIII", 1, 0, 8, 0))
    yield "session_ready", message(22, struct.pack("<IIII", 1, 2, 3, 0) + reason)
    yield "close_session", message(23, struct.pack("<II", 1, 806))
    yield "session_closed", message(24, struct.pack("<II", 1, 0))
    yield "window_free", message(26, struct.pack("<II", 3, 0))
    yield "fault", message(25, struct.pack("<II", 3, 700) + reason)
    yield "pass_descriptor", message(30, struct.pack("<II", 1, 7))
    yield "descriptor_taken", message(31, struct.pack("<II", 1, 0))
    yield "probe", message(34, b"")
    yield "alive", message(35, b"")
    yield "leave_session", message(42, struct.pack("<II", 3, 2000))
    yield "worker_lost", message(36, struct.pack("<II", 0, 700) + reason)
    yield "handed_over", message(37, struct.pack("<IIIIIIQ6I", 1, 1, 2, 1, 0, 150, 3, 128, 1, 1, 256, 1, 1)
                                 + b"scatter_add\x1b[2J".ljust(256, b"\0") + reason)
    yield "keep", message(38, struct.pack("<IIQQIIQQ", 1, 0, 7, 1 << 21, 0, 0, 0, 0))
    yield "keep_contents", message(38, struct.pack("<IIQQIIQQ", 1, 3, 7, 1 << 21, 0, 0, 1 << 21, 2))
    yield "forget", message(39, struct.pack("<IIQQ", 1, 0, 7, 1))
    yield "forgotten", message(40, struct.pack("<Q", 1))
    yield "give", message(41, struct.pack("<IIQQIIQ", 0, 1, 1 << 63, 4096, 0, 0, 0))
    key = bytes(range(16))
    yield "share_memory", message(43, struct.pack("<IIQQ", 1, 0, 7, 3) + key)
    yield "find_memory", message(44, struct.pack("<Q", 1) + key)
    yield "suspend_session", message(45, struct.pack("<IIII", 3, 2, 2000, 0))
    yield "session_suspended", message(46, struct.pack("<IIQQ", 3, 0, 1 << 30, 1 << 21))
    yield "memory_short", message(47, struct.pack("<IIQ", 0, 0, 1 << 30))
    yield "other_version", message(1, bytes(16), 3)
    yield "no_header", b"OMPS"
    yield "devices", b"0000:00:06.0\tGPU-008cbaa3\tNVIDIA H200\t132\t4096\t8\t120\n\t\t\t\t\t\t\n0000:00:07.0\tGPU"


def wire_seeds():
    """The commands of the session seeds as records in a ring, preceded by the ring's tail."""
    for name, data in session_corpus.seeds():
        if name.startswith("broken") or name.endswith("_failures"):
            continue
        ring = b""
        while data:
            opcode, size = struct.unpack_from("<HH", data)
            body, data = data[4:4 + size], data[4 + size:]
            whole = -(-(8 + size) // 16) * 16
            if opcode != 0:  # opcode 0 is for session_fuzz itself
                ring += struct.pack("<IHH", whole, opcode, 0xffff) + body.ljust(whole - 8, b"\0")
        yield f"ring_{name}", struct.pack("<Q", len(ring)) + ring


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


def cubin_with_variables():
    """A variable of the program and one of the compiler, with relocations of both in a table of
    addresses and in code."""
    names = [b"", b".shstrtab", b".strtab", b".symtab", b".nv.global.init", b".nv.constant4", b".text.k",
             b".rela.nv.constant4", b".rela.text.k"]
    rela = lambda offset, symbol, kind: struct.pack("<QQq", offset, symbol << 32 | kind, 4)
    symbol = lambda name, kind, section: struct.pack("<IBBHQQ", name, kind, 0, section, 0, 4)
    bodies = [b"", b"\0".join(names) + b"\0", b"\0x\0$str\0", bytes(24) + symbol(1, 1, 4) + symbol(3, 1, 4),
              bytes(16), bytes(16), bytes(32), rela(0, 1, 2) + rela(8, 2, 2), rela(0, 1, 0x38) + rela(16, 1, 0x39)]
    kinds = [(0, 0, 0), (3, 0, 0), (3, 0, 0), (2, 2, 0), (1, 0, 0), (1, 0, 0), (1, 0, 0), (4, 3, 5), (4, 3, 6)]
    headers, at = b"", 64 + 64 * len(names)
    for i, (kind, link, info) in enumerate(kinds):
        headers += struct.pack("<IIQQQQIIQQ", sum(len(name) + 1 for name in names[:i]), kind, 0, 0, at,
                               len(bodies[i]), link, info, 1, 0)
        at += len(bodies[i])
    return (b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + struct.pack("<H", 190) + bytes(20) + struct.pack("<Q", 64) +
            bytes(10) + struct.pack("<HHH", 64, len(names), 1) + headers + b"".join(bodies))


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
    aligned = container(entry(PTX.ljust((len(PTX) + 7) // 8 * 8, b"\n")))
    yield "prelinked", container() + aligned + aligned
    yield "prelinked_cut", container() + aligned + aligned[:-8]
    yield "prelinked_text", container() + PTX
    yield "text", PTX
    yield "cubin", b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + struct.pack("<H", 190) + bytes(44)
    sections = b"\x7fELF".ljust(40, b"\0") + struct.pack("<Q", 64) + bytes(10) + struct.pack("<HH", 64, 1)
    yield "elf_inside", container(entry(sections.ljust(128, b"\0"), 90, kind=2))
    yield "elf_beyond", container(entry(sections.ljust(104, b"\0"), 90, kind=2))
    yield "variables", cubin_with_variables()
    yield "variables_packed", container(entry(cubin_with_variables(), 90, kind=2))
    yield "rubbish", bytes(range(64))
    yield "one_byte", b"."


def main():
    for target, seeds in (("session", session_corpus.seeds()), ("message", message_seeds()),
                          ("fatbin", fatbin_seeds()), ("ptx", ptx_corpus.seeds()), ("wire", wire_seeds())):
        for name, data in seeds:
            write(target, name, data)


if __name__ == "__main__":
    main()
