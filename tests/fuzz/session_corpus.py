# SPDX-License-Identifier: Apache-2.0
"""The seeds of session_fuzz, by the names of the commands. make_corpus.py writes them.

Numbers and layouts are those of the commands' description (api/commands). A command without a seed
that succeeds fails the ctest entry of session_fuzz.
"""
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "api"))
from generator import commands  # noqa: E402

PROTOCOL = commands.load(sorted(str(path) for path in (ROOT / "api/commands").glob("*.toml")))

# src/wire/layout.h
WINDOW_BYTES = 72 << 30
DEVICE_BYTES = 8 << 30
GIB = 1 << 30
MIB = 1 << 20
PAGE = 4096
FIRST_EXTENT = 0x7c00_0000_0000 - GIB  # a session's first extent has the highest aligned address
GLOBAL = 0x7f00_0000_0000  # strict_driver.h: the globals, a page for each module


class Window:
    """The addresses of a session of session_fuzz.cc."""

    def __init__(self, index):
        self.base = 0x1100_0000_0000 + (3 + index) * WINDOW_BYTES
        self.host = self.base + DEVICE_BYTES
        self.staging = self.host + 6 * MIB
        self.pinned = self.host + 32 * MIB


ONE, TWO = Window(0), Window(1)

def record(opcode, body):
    return struct.pack("<HH", opcode, len(body)) + body


def pack(name, *values):
    """The bytes of a command or a structure. Fields without a value are 0."""
    structure = PROTOCOL.commands.get(name) or PROTOCOL.structs[name]
    packer = struct.Struct("<" + PROTOCOL.format(structure))
    zeros = struct.unpack(packer.format, bytes(packer.size))
    return packer.pack(*values, *zeros[len(values):])


def command(name, *values, more=b""):
    return record(PROTOCOL.commands[name].number, pack(name, *values) + more)


def instruction(what, argument=0, more=b""):
    return record(0, struct.pack("<II", what, argument) + more)


SWITCH, RESTART = instruction(0), instruction(3)


def move(found=1, *damage):
    """The session goes on in another worker; `damage`: pairs of an offset and a word (session_fuzz.cc)."""
    return instruction(4, found, b"".join(struct.pack("<II", *pair) for pair in damage))


FIRST_CONDITION = 0x7001  # strict_driver.h: its first conditional handle


def fail(more):
    return instruction(1, more)


def stream(number, kind=1, device=0):
    return command("StreamCreate", number, 1 + device, device, kind, 0, 0, 0, number % 4096)


def event(number):
    return command("EventCreate", number)


PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry kern(.param .u64 a, .param .u64 b) { ret; }
"""
VARIABLES = PTX + b".global .align 8 .b8 glob[256];\n.extern .func vprintf;\n"


def blob(number, image, window=ONE):
    return (instruction(2, 0, image) + command("BlobBegin", len(image), number)
            + command("BlobData", number, len(image), 0, window.staging))


def module(number, image, kind=0, window=ONE, options=b""):
    return (blob(number, image, window)
            + command("ModuleLoad", number, number, 0, kind, 4000, len(options) // 16, more=options))


def function(module_id, number, kind=0):
    return command("GetFunction", module_id, number, kind, 4, more=b"kern")


def global_of(module_id, kind=0):
    return command("GetGlobal", module_id, kind, 4, more=b"glob")


PARAMETERS = bytes(16)
OPTION = pack("JitOption", 3, 7)  # CU_JIT_OPTIMIZATION_LEVEL


def attribute(number, value):
    return struct.pack("<II", number, 0) + value.ljust(64, b"\0")


def key(number):
    return bytes([number]) + bytes(15)


def basics():
    yield "ping", command("Ping")
    yield "memory", (stream(1) + command("MemoryMap", ONE.base, 4 * MIB, 0)
                     + command("MemoryMap", ONE.base + 4 * MIB, 2 * MIB, 0)
                     + command("Memcpy", 1, 1, ONE.base + 64, ONE.staging, 4096)
                     + command("Memcpy", 1, 0, ONE.base + 3 * MIB, ONE.base, 2 * MIB)
                     + command("HostRegister", ONE.pinned, 2 * MIB)
                     + command("Memcpy3D", 1, 0, ONE.base, ONE.pinned, 512, 256, 4096, 2048, 200, 8, 2)
                     + command("Memset", 1, 4, ONE.base, 1024, 16, 4, 7)
                     + command("Memset", 1, 1, ONE.base, 0, 4096, 1, 7)
                     + command("Memset", 1, 2, ONE.base, 0, 4096, 1, 7)
                     + command("MemoryInfo", 0)
                     + command("LimitGet") + command("LimitRaise", 0, 0, 4096)
                     + command("LimitRaise", 0, 2, 16 * MIB) + command("LimitRaise", 0, 1, 9 * MIB)
                     + command("HostUnregister", ONE.pinned, 2 * MIB)
                     + command("MemoryUnmap", ONE.base, 6 * MIB, 0, 0))
    yield "events", (stream(1) + stream(2, 0) + stream(3, 2) + event(1) + event(2)
                     + command("EventRecord", 1, 1, 3, 0, 5)
                     + command("StreamWaitEvent", 2, 1)
                     + command("EventRecord", 2, 2, 0xffffffff, 0, 0)
                     + command("EventElapsed", 1, 2) + command("EventQuery", 1)
                     + command("Fence", 1, 4, 9) + command("WakeAfter", 2)
                     + command("HostFunction", 1, 3, 7, 1, 0) + command("EventDestroy", 1)
                     + command("StreamDestroy", 1) + command("ContextReset", 1, 0))
    yield "values", (stream(1) + command("StreamWriteValue", ONE.staging + 8, 5, 4, 0, 1)
                     + command("StreamWaitValue", ONE.staging + 16, 5, 8, 0, 1))
    operation = lambda kind, *value: pack("ValueOperation", *value, kind)
    yield "batch", (stream(1) + command("StreamBatch", 1, 3, more=operation(1, ONE.staging + 8, 5, 4, 0)
                                        + operation(2, 0, 0, 0, 1)
                                        + operation(0, ONE.staging + 16, 5, 8, 0))
                    + command("StreamBatch", 1, 0))
    yield "out_of_memory", (stream(1) + b"".join(
        fail(n) + command("MemoryMap", ONE.base + n * 4 * MIB, 4 * MIB, 0) for n in range(5)))


def images():
    attributes = (attribute(8, struct.pack("<i", 3)) + attribute(1, struct.pack("<QQfII", ONE.staging, 64, 1, 0, 0)))
    yield "launch", (stream(1) + module(1, VARIABLES, options=OPTION) + function(1, 1) + global_of(1)
                     + command("Launch", 1, 1, 2, 1, 1, 32, 1, 1, 0, 0, 16, 0, more=PARAMETERS)
                     + command("Launch", 1, 1, 2, 1, 1, 32, 1, 1, 0, 2, 16, 1, more=attributes + PARAMETERS)
                     + command("FunctionSetAttribute", 1, 0, 8, 4096)
                     + command("FunctionSetAttribute", 1, 1, 1)
                     + command("FunctionSetAttribute", 1, 2, 1)
                     + command("FunctionGetAttribute", 1)
                     + command("Occupancy", 1, 128)
                     + command("ClusterOccupancy", 1, 0, 8, 1, 1, 32, 1, 1, 0, 1,
                               more=attribute(4, struct.pack("<III", 2, 1, 1)))
                     + command("ClusterOccupancy", 1, 1, 8, 1, 1, 32, 1, 1, 0)
                     + command("ModuleSymbols", 1) + command("ModuleFunctions", 1, 0)
                     + command("OutputFlush")
                     + command("SharedMemoryRoom", 1, 2, 64)
                     + command("ModuleUnload", 1))
    # The variables lie in the session's memory, and not where the driver has put them.
    yield "module_variable", (stream(1) + module(1, VARIABLES) + global_of(1)
                              + command("Memset", 1, 4, GLOBAL + 4096, 0, 16, 1, 7))
    library = module(2, PTX, 1) + function(2, 5, 1) + function(2, 6, 1)
    yield "library", (library + stream(1) + command("ModuleSymbols", 2) + command("ModuleFunctions", 2, 1)
                      + command("FunctionSetAttribute", 5, 0, 8, 4096, 1)
                      + command("Launch", 1, 5, 2, 1, 1, 32, 1, 1, 0, 0, 16, 0, more=PARAMETERS)
                      + command("SharedMemoryRoom", 5, 2, 64)
                      # Another session uses the image, too, and still has it when the first one has unloaded it.
                      + SWITCH + module(1, PTX, 1, TWO) + function(1, 1, 1) + stream(1) + SWITCH
                      + command("ModuleUnload", 2) + RESTART + SWITCH
                      + command("Launch", 1, 1, 2, 1, 1, 32, 1, 1, 0, 0, 16, 0, more=PARAMETERS))
    yield "library_variables", (module(1, VARIABLES, 1) + global_of(1, 1)
                                + stream(1) + command("Memset", 1, 1, GLOBAL + ((1 << 32) + 1) * 4096, 0, 256, 1, 7))
    name = b"part.ptx"
    yield "link", (command("LinkCreate", 1, 0, 4000, 1, more=OPTION) + blob(1, PTX)
                   + command("LinkAdd", 1, 1, 1, len(name), 1, more=OPTION + name)
                   + command("LinkComplete", 1)
                   + command("LinkRead", 1, 4000, 96, ONE.staging + 4096) + command("LinkDestroy", 1)
                   + command("LinkCreate", 1, 0, 0, 0) + command("LinkComplete", 1))


def graphs():
    launch = struct.pack("<12I", 0, 1, 2, 1, 1, 32, 1, 1, 0, 1, 16, 1) + attribute(
        8, struct.pack("<i", 3)) + PARAMETERS
    copy = pack("Memcpy3D", 0, 0, ONE.staging, ONE.base, 64, 64, 128, 128, 64, 2, 2)
    fill = pack("Memset", 0, 4, ONE.base, 1024, 16, 2, 7)
    writes = pack("ValueOperation", ONE.staging + 8, 5, 4, 0, 1)
    waits = pack("ValueOperation", ONE.staging + 16, 5, 8, 0, 0)
    edge = struct.pack("<IBBBB", 0, 0, 0, 0, 0)
    programmatic = struct.pack("<IBBBB", 0, 1, 0, 1, 0)
    nodes = [(1, b"", launch), (1, programmatic, launch), (2, edge, copy), (3, edge, fill),
             (4, edge, pack("HostFunction", 0, 7, 0, 0xffffffff, 0)), (5, edge, pack("GraphEvent", 1)),
             (6, edge, pack("GraphEvent", 1)), (7, edge, writes + waits), (0, edge, b"")]
    bodies = [body for _, _, body in nodes]

    def described(exec_id):
        return command("GraphBegin", exec_id) + b"".join(
            command("GraphNode", exec_id, kind, len(edges) // 8, len(body), more=edges + body)
            for kind, edges, body in nodes)

    def change(node):
        return command("GraphSetNode", 1, node, nodes[node][0], len(bodies[node]), more=bodies[node])

    start = (stream(1) + event(1) + module(1, VARIABLES) + function(1, 1)
             + command("MemoryMap", ONE.base, 2 * MIB, 0))
    yield "graph", (start + described(1) + command("GraphInstantiate", 0, 1)
                    + command("GraphUpload", 1, 1) + command("GraphLaunch", 1, 1)
                    + b"".join(change(n) for n in (0, 2, 3, 5, 6, 7))
                    + command("GraphEnableNode", 1)
                    + described(1) + command("GraphUpdate", 1) + command("GraphLaunch", 1, 1)
                    + command("GraphExecDestroy", 1))
    # A graph that is launched after the objects that it uses have been destroyed one by one.
    yield "graph_lost", (start + described(1) + command("GraphInstantiate", 0, 1)
                         + command("EventDestroy", 1) + command("GraphLaunch", 1, 1)
                         + command("ModuleUnload", 1) + command("GraphLaunch", 1, 1)
                         + command("MemoryUnmap", ONE.base, 2 * MIB, 0, 0) + command("GraphLaunch", 1, 1))
    endless = pack("Memset", 0, 4, ONE.base, 1024, 1 << 62, 0, 7)
    yield "graph_no_rows", (start + command("GraphBegin", 1)
                            + command("GraphNode", 1, 3, 0, len(endless), more=endless)
                            + command("GraphInstantiate", 0, 1) + command("GraphLaunch", 1, 1))
    # Conditional handles, nested bodies, and an update with other parameters.
    def conditional(number, kind, bodies):
        return struct.pack("<QII", FIRST_CONDITION + number, kind, bodies)

    # An if node with bodies 1 and 2, in body 2 a while node with body 3, then a switch node with
    # bodies 4 to 6.
    inside = [(8, b"", conditional(0, 0, 2), 0), (3, b"", fill, 1), (8, b"", conditional(1, 1, 1), 2),
              (1, b"", launch, 3), (8, edge, conditional(2, 2, 3), 0), (2, b"", copy, 4), (0, b"", b"", 6),
              (4, edge, pack("HostFunction", 0, 7, 0, 0xffffffff, 0), 0), (5, edge, pack("GraphEvent", 1), 0),
              (6, edge, pack("GraphEvent", 1), 0), (7, edge, writes + waits, 0)]
    nested = command("GraphBegin", 1, 0, 1) + b"".join(
        command("GraphNode", 1, kind, len(edges) // 8, len(body), parent, more=edges + body)
        for kind, edges, body, parent in inside)
    conditions = start + b"".join(command("ConditionCreate", 1, 0, n, 1) for n in range(3))
    yield "conditional", (conditions + nested + command("GraphInstantiate", 0, 1)
                          + command("GraphLaunch", 1, 1) + nested + command("GraphUpdate", 1)
                          + command("GraphForget", 1) + command("GraphLaunch", 1, 1)
                          + command("MemoryUnmap", ONE.base, 2 * MIB, 0, 0) + command("GraphLaunch", 1, 1))
    yield "conditional_failures", conditions + b"".join(
        fail(n) + nested + command("GraphInstantiate", 0, 1) for n in range(12))
    yield "graph_failures", start + b"".join(
        fail(n) + described(1) + command("GraphInstantiate", 0, 1) for n in range(12))


def arrays():
    def create(number, levels, width=64, height=32, depth=0, flags=2):
        names = (0, number) if levels else (number, 0)
        return command("ArrayCreate", *names, width, height, depth, 0x20, 1, flags, 0, levels)

    def image(number, kind, resource, array=0, view=0):
        shown = (0, array) if resource == 1 else (array, 0)
        return command("ImageCreate", number, kind, 0, resource, *shown, 0x20, 1, view, 0, ONE.base, 4096,
                       32, 16, 256, bytes(104), bytes(112))

    linear = (0, 0, 0, 0, 0, ONE.base, 128, 4096)
    whole = (1, 0, 16, 2, 0, 0, 0, 0)
    yield "arrays", (stream(1) + command("MemoryMap", ONE.base, 2 * MIB, 0)
                     + create(1, 0) + create(2, 0, 8, 8, 8) + create(1, 3)
                     + command("ArrayPart", 3, 0, 1, 1) + command("ArrayPart", 4, 1, 0, 0)
                     + command("ArrayPart", 5, 3, 0, 0)
                     + command("ArrayCopy", 1, 1, *whole, *linear, 64, 8, 1)
                     + command("ArrayCopy", 1, 0, *linear, *whole, 64, 8, 1)
                     + command("ArrayCopy", 1, 0, *whole, *whole, 64, 8, 1)
                     + image(1, 0, 0, 1) + image(2, 0, 1, 1, 1) + image(3, 0, 2) + image(4, 0, 3)
                     + image(5, 1, 0, 3)
                     + command("ImageDestroy", 1) + command("ArrayDestroy", 4)
                     # Arrays that textures use remain after their handles are destroyed.
                     + command("MipmappedDestroy", 1) + command("ArrayDestroy", 1)
                     + command("ImageDestroy", 5))
    yield "no_channels", (command("MemoryMap", ONE.base, 2 * MIB, 0)
                          + command("ImageCreate", 1, 0, 0, 3, 0, 0, 0x20, 0, 0, 0, ONE.base, 4096, 32, 1 << 40,
                                    1 << 20, bytes(104), bytes(112)))
    yield "array_read_only", (stream(1) + create(1, 0) + command("MemoryMap", ONE.base, 2 * MIB, 0)
                              + command("MemoryAccess", ONE.base, 2 * MIB, 0, 1)
                              + command("ArrayCopy", 1, 0, *whole, *linear, 64, 8, 1)
                              + command("ArrayCopy", 1, 0, *linear, *whole, 64, 8, 1))
    yield "value_read_only", (stream(1) + command("MemoryMap", ONE.base, 2 * MIB, 0)
                              + command("MemoryAccess", ONE.base, 2 * MIB, 0, 1)
                              + command("StreamWaitValue", ONE.base, 5, 8, 0, 1))


def resource(first, count):
    """The SM resource that the fake driver reports."""
    return struct.pack("<IB91x3I36x", 1 if count else 0, first, count, 2, 2)


def greens():
    """A green context of four of sixteen SMs, with a stream, an event of all its streams, kernels of graphs."""
    split = (command("DeviceResource", 0, 0, 1)
             + command("ResourceSplit", resource(0, 16), 0, 0, 4, 1, 0)
             + command("ResourceSplit", resource(0, 16), 3, 0, 4, 0, 1)
             + command("ResourceRead", 0) + command("ResourceRead", 3))
    made = (split + command("ResourceDescribe", 1, 2, more=resource(4, 4) + resource(12, 4))
            + command("GreenCreate", 1, 1, 0, 1) + command("DeviceResource", 0, 1, 1)
            + command("StreamCreate", 1, 1, 0, 2, 0, 1) + command("StreamCreate", 2, 1, 0, 2, 0, 1)
            + event(1) + command("Fence", 1, 3, 1))
    used = (command("ContextJoin", 2, 1) + command("EventRecord", 1, 2, 4, 0, 1)
            + command("StreamWaitEvent", 2, 1) + command("ContextFollow", 2)
            + command("StreamAcknowledge", 2)
            + command("Fence", 1, 3, 2))
    yield "green", (made + used + command("StreamDestroy", 1) + command("StreamDestroy", 2)
                    + command("GreenDestroy", 1))
    yield "green_left", made + used
    yield "green_in_use", made + command("GreenDestroy", 1)
    yield "green_made_up", split + command("ResourceDescribe", 1, 1, more=resource(5, 4))
    yield "green_failures", b"".join(fail(n) + made + used + RESTART for n in range(9))
    launch = struct.pack("<12I", 0, 1, 2, 1, 1, 32, 1, 1, 0, 0, 16, 0) + PARAMETERS
    in_green = command("GraphNode", 1, 1, 0, len(launch), 0, 0, 1, more=launch)
    graph = (module(1, VARIABLES) + function(1, 1) + command("GraphBegin", 1) + in_green
             + command("GraphInstantiate", 0, 1) + command("GraphLaunch", 1, 1))
    leave = command("StreamDestroy", 1) + command("StreamDestroy", 2) + command("GreenDestroy", 1)
    yield "green_graph", (made + stream(3) + graph + leave + command("GraphLaunch", 1, 3)
                          + command("GraphSetNode", 1, 0, 1, len(launch), more=launch)
                          + command("GraphLaunch", 1, 3) + command("GraphExecDestroy", 1))
    yield "green_graph_failures", b"".join(fail(n) + made + graph + RESTART for n in range(14))
    body = struct.pack("<QII", FIRST_CONDITION, 0, 1)
    yield "green_conditional", (made + module(1, VARIABLES) + function(1, 1)
                                + command("ConditionCreate", 1, 0, 1, 1, 0, 1)
                                + command("GraphBegin", 1, 0, 1)
                                + command("GraphNode", 1, 8, 0, len(body), more=body)
                                + command("GraphNode", 1, 1, 0, len(launch), 1, 0, 1, more=launch)
                                + command("GraphInstantiate", 0, 1) + command("GraphLaunch", 1, 1))


def sharing():
    yield "extent", (stream(1) + command("AddressReserve", 8 * MIB, 2 * MIB)
                     + command("PhysicalCreate", 1, 0, 4 * MIB, 1)
                     + command("PhysicalMap", FIRST_EXTENT, 4 * MIB, 0, 1)
                     + command("MemoryAccess", FIRST_EXTENT, 4 * MIB, 0, 3)
                     + command("PhysicalRelease", 1)
                     + command("Memset", 1, 4, FIRST_EXTENT, 0, 1 << 20, 1, 7)
                     + command("MemoryUnmap", FIRST_EXTENT, 4 * MIB, 0, 0)
                     + command("AddressFree", FIRST_EXTENT, 8 * MIB))
    yield "descriptors", (command("PhysicalCreate", 1, 0, 4 * MIB, 1) + command("PhysicalExport", 1, 7)
                          + command("PhysicalImport", 2, 7)
                          + command("PhysicalMap", ONE.base, 2 * MIB, 0, 1)
                          + command("PhysicalMap", ONE.base + 2 * MIB, 2 * MIB, 0, 2)
                          + command("RangeExport", ONE.base + MIB, 2 * MIB, 1, 8))
    pages = 0x7d0000000000  # outside of all windows, and very likely free
    yield "host_pages", (command("HostReserve", pages, 4 * PAGE) + command("HostMap", pages, 4 * PAGE, PAGE, 7, 0)
                         + command("HostRegister", pages + 100, 8000) + stream(1)
                         + command("Memset", 1, 1, pages + 100, 0, 64, 1, 7)
                         + command("HostUnregister", pages + 100, 8000) + command("HostFree", pages)
                         + command("HostReserve", ONE.base, PAGE) + command("HostRegister", pages, 1))
    opened = (SWITCH + stream(1) + command("MemoryOpen", key(0), TWO.base, 4 * MIB)
              + command("EventOpen", 1, 0, key(1)) + command("StreamWaitEvent", 1, 1)
              + command("Memset", 1, 4, TWO.base, 0, 64, 1, 7))
    published = (stream(1) + command("MemoryMap", ONE.base, 4 * MIB, 0) + event(1)
                 + command("MemoryPublish", ONE.base, 4 * MIB) + command("EventPublish", 1)
                 + command("EventRecord", 1, 1, 0xffffffff, 0, 0))
    # Neither session's end takes memory away from the other.
    yield "shared", (published + opened + SWITCH + command("MemoryUnmap", ONE.base, 4 * MIB, 0, 0)
                     + command("EventDestroy", 1) + RESTART + SWITCH
                     + command("Memset", 1, 4, TWO.base, 0, 64, 1, 7) + command("EventQuery", 1))
    yield "withdrawn", (published + command("MemoryWithdraw", key(0)) + opened)
    yield "foreign", (published + SWITCH + stream(1) + command("Memset", 1, 4, ONE.base, 0, 64, 1, 7))
    yield "peers", (command("MemoryMap", ONE.base, 2 * MIB, 1) + command("PeerAccess", 0, 1, 1)
                    + command("MemoryMap", ONE.base + 2 * MIB, 2 * MIB, 1) + stream(1) + stream(2, 1, 1)
                    + command("Memset", 1, 4, ONE.base, 0, 1 << 20, 1, 7)
                    + command("PeerAccess", 0, 1, 0))


def queries():
    words = struct.pack("<3I", 1, 2, 3)
    yield "device_queries", (
        command("PersistingCacheReset") + command("PeerAccessible", 0, 1)
        + command("AtomicCapabilities", 0, 0xffffffff, 3, more=words)
        + command("AtomicCapabilities", 0, 1, 3, more=words)
        + command("PeerAttribute", 0, 1, 1) + command("TextureWidth", 0, 0x20, 1)
        + command("RemoteWritesFlush", 0, 0, 100))
    sizes, strides, box, steps = (64, 32, 16, 0, 0), (256, 8192, 0, 0, 0), (8, 8, 8, 0, 0), (1, 1, 1, 0, 0)
    none = (0,) * 5

    def tensor(kind, rank, without_strides=0):
        return command("TensorMapEncode", 0, kind, ONE.base, *sizes, *strides, *box, *steps, *none, *none,
                       rank, 7, without_strides, 4, 8)

    yield "tensor_maps", (tensor(0, 3) + tensor(0, 5, 1) + tensor(1, 3) + tensor(2, 3)
                          + command("TensorMapReplace", 0, 0, ONE.base))
    yield "tensor_ranks", tensor(1, 2) + tensor(0, 1) + tensor(0, 6)


JOURNAL_START = 86016  # src/wire/journal.h
FENCE_SLOTS = 92  # how many are used
CHANNEL = 1 << 31


def moved():
    objects = (stream(1) + stream(2, 0) + event(1) + module(1, PTX) + function(1, 1)
               + command("EventRecord", 1, 1, 3, 0, 5) + command("Fence", 1, 4, 9))
    after = command("EventQuery", 1) + command("Fence", 2, 5, 10) + command("StreamDestroy", 1)
    for found in (0, 1):
        yield f"moved_{found}", objects + move(found) + after + move(found) + after
    yield "moved_memory", (stream(1) + command("MemoryMap", ONE.base, 4 * MIB, 0) + move(0)
                           + command("Memset", 1, 4, ONE.base, 0, 64, 1, 7))
    yield "moved_beside", objects + SWITCH + objects + move(1) + SWITCH + move(0) + after
    # The header: magic, version, extent, its ends; entries: bytes, opcode and state, record, reply.
    for name, offset in (("magic", 0), ("version", 4), ("extent", 8), ("begin", 16), ("end", 24)):
        yield f"moved_bad_{name}", objects + move(1, (offset, 0xfffffff1)) + RESTART + objects
    for word in range(10):
        yield f"moved_bad_entry_{word}", objects + move(1, (JOURNAL_START + 4 * word, 0x00ff0007)) + RESTART + objects
    # Work that had not ended, and nonsense in ring and fences.
    lost = tuple((4096 + 16 * slot + 8, 1) for slot in range(6))
    yield "moved_lost", objects + move(1, (FENCE_SLOTS, 6), *lost) + after
    nonsense = tuple((CHANNEL | at, 0xffffffff) for at in range(0, 8192, 64))
    yield "moved_nonsense", objects + move(1, (FENCE_SLOTS, 0xffffffff), *lost, *nonsense) + after


def broken():
    """Every command with meaningless bodies, each in a session of its own."""
    everything = list(PROTOCOL.commands.values())
    for name, byte in (("zeros", b"\0"), ("ones", b"\xff")):
        for half in (0, 1):
            yield f"broken_{name}_{half}", b"".join(
                RESTART + record(c.number, byte * c.bytes) for c in everything[half::2])
    yield "broken_short", b"".join(RESTART + record(c.number, b"\1") for c in everything)


def seeds():
    for family in (basics, images, graphs, arrays, greens, sharing, queries, moved, broken):
        yield from family()
