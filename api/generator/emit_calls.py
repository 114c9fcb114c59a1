# SPDX-License-Identifier: Apache-2.0
"""client_calls.cc and client_handlers.h: the code that `enter`, `get` and `returns` of a description generate."""
import dataclasses
import re

from .text import head, wrap


@dataclasses.dataclass(frozen=True)
class Enter:
    """How a call begins. `finds_context`: with the current context, or that of a CUcontext parameter."""
    steps: tuple
    finds_context: bool = False


ENTER = {
    "local": Enter(("enter_local(&session)",)),
    "session": Enter(("enter(&session)",)),
    "unsafe session": Enter(("enter(&session)", "check_unsafe(*session)")),
    "unsafe": Enter(("enter_unsafe(&session)",)),
    "context": Enter(("enter(&session, &context)",), True),
    "unsafe context": Enter(("enter_unsafe(&session, &context)",), True),
    "stream": Enter(("enter(&session, &context, {stream}, &stream)",)),
}

# What open captures forbid, once the objects are found.
REFUSE = {
    "capturing": ("session->captures.refuse(*{found})",),
    "unsafe": ("check_unsafe(*session)",),
    "capturing, unsafe": ("session->captures.refuse(*{found})", "check_unsafe(*session)"),
    "capturing, at last": ("session->captures.refuse(*{found})",),
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """An object behind a handle: its class, its name in generated code, and how it is found."""
    object: str
    name: str
    find: str
    otherwise: str = "CUDA_ERROR_INVALID_HANDLE"
    of_graphs: bool = False  # found and used under the lock of the session's graphs


KINDS = {
    "CUarray": Kind("Array", "array", "session->arrays.find({})"),
    "CUevent": Kind("Event", "event", "session->events.find({})"),
    "CUfunction": Kind("Function", "function", "session->modules.functions.find({})"),
    "CUgraph": Kind("Graph", "graph", "session->graphs.find({})", "CUDA_ERROR_INVALID_VALUE", True),
    "CUgraphExec": Kind("GraphExec", "exec", "session->graph_execs.find({})",
                        "CUDA_ERROR_INVALID_VALUE", True),
    "CUgraphNode": Kind("GraphNode", "node", "session->graphs.nodes.find({})",
                        "CUDA_ERROR_INVALID_VALUE", True),
    "CUgreenCtx": Kind("GreenContext", "green", "session->greens.find({})",
                       "missing_green({})"),
    "CUkernel": Kind("Function", "function", "session->modules.functions.find({})"),
    "CUlibrary": Kind("Module", "library", "session->modules.find_library({})"),
    "CUlinkState": Kind("Link", "link", "session->links.find({})"),
    "CUmemGenericAllocationHandle": Kind("PhysicalMemory", "physical", "session->physical.find({})",
                                         "CUDA_ERROR_INVALID_VALUE"),
    "CUmemoryPool": Kind("MemoryPool", "pool", "session->pools.find({})",
                         "CUDA_ERROR_INVALID_VALUE"),
    "CUmipmappedArray": Kind("MipmappedArray", "mipmapped", "session->arrays.mipmapped.find({})"),
    "CUmodule": Kind("Module", "module", "session->modules.find({})"),
    "CUuserObject": Kind("UserObject", "object", "session->user_objects.find({})",
                         "CUDA_ERROR_INVALID_VALUE"),
}
CONTEXT = Kind("Context", "context", "")
# A context that is not the one of the call: NULL is none.
OTHER_CONTEXT = Kind("Context", "other", "")
STREAM = Kind("Stream", "stream", "")


def kind_of(function, param):
    """The object that the generated code finds behind a parameter, or None."""
    if param.direction not in ("handle", "release") or param.optional or param.length:
        return None
    if param.type == "CUstream" and function.enter == "stream":
        return STREAM
    if param.type == "CUcontext":
        return CONTEXT if ENTER[function.enter].finds_context else OTHER_CONTEXT
    return KINDS.get(param.type)


def is_checked(param):
    """A pointer that has to be there, and points to one thing."""
    return (param.is_pointer and not param.optional and param.length is None
            and param.direction in ("in", "out", "inout", "new", "string"))


class Call:
    """The generated implementation of a function with `enter`."""

    def __init__(self, function):
        self.function = function
        self.enter = ENTER[function.enter]
        self.kinds = {p.name: kind_of(function, p) for p in function.params}
        found = [kind.name for kind in self.kinds.values() if kind]
        # Two objects of one kind are told apart by their parameters' names.
        self.objects = {name: kind.name if found.count(kind.name) == 1 else f"{kind.name}_{name}"
                        for name, kind in self.kinds.items() if kind}
        # A parameter that is called like an object steps aside.
        taken = {"session", "context", *self.objects.values()}
        self.names = {p.name: f"{p.name}_argument" if p.name in taken else p.name
                      for p in function.params}

    @property
    def finds_current(self):
        return self.enter.finds_context and CONTEXT not in self.kinds.values()

    def handler_params(self):
        params = ["Session& session"] + (["Context& context"] if self.finds_current else [])
        for p in self.function.params:
            kind = self.kinds[p.name]
            if kind:
                params.append(f"{kind.object}& {p.name}")
            elif p.direction == "device":
                params.append(f"uint32_t {p.name}")
            else:
                params.append(p.declaration)
        return params

    def handler_arguments(self):
        arguments = ["*session"] + (["*context"] if self.finds_current else [])
        for p in self.function.params:
            if self.kinds[p.name]:
                arguments.append(f"*{self.objects[p.name]}")
            elif p.direction == "device":
                arguments.append(f"static_cast<uint32_t>({self.names[p.name]})")
            else:
                arguments.append(self.names[p.name])
        return arguments

    def definition(self):
        declarations = [f"{p.type} {self.names[p.name]}" for p in self.function.params]
        start = wrap(f"CUresult {self.function.symbol}(", declarations, ")")
        lines = self._first() + self._enter() + self._find() + self._check() + self._finish()
        return start + " {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n\n"

    def _argument_of(self, kind):
        return next(self.names[name] for name, k in self.kinds.items() if k is kind)

    def _first(self):
        missing = [f"{self.names[name]} == nullptr" for name in self.function.first]
        return [f"if ({' || '.join(missing)}) return CUDA_ERROR_INVALID_VALUE;"] if missing else []

    def _enter(self):
        lines = ["Session* session = nullptr;"]
        if self.enter.finds_context or self.function.enter == "stream":
            lines.append("Context* context = nullptr;")
        steps = self.enter.steps
        if self.function.enter == "stream":
            lines.append("Stream* stream = nullptr;")
            steps = [step.format(stream=self._argument_of(STREAM)) for step in steps]
        elif CONTEXT in self.kinds.values():
            steps = [f"context_or_current({self._argument_of(CONTEXT)}, &session, &context)"]
        return lines + [f"OPENMPS_CUDA_CHECK({step});" for step in steps]

    def _find(self):
        lines = []
        of_graphs = any(kind and kind.of_graphs for kind in self.kinds.values())
        if of_graphs and self.function.enter != "stream":
            lines.append("const MutexLock guard(session->graphs.lock);")
        for p in self.function.params:
            kind, argument = self.kinds[p.name], self.names[p.name]
            name = self.objects.get(p.name)
            if kind is OTHER_CONTEXT:
                lines += [f"Context* {name} = nullptr;",
                          f"OPENMPS_CUDA_CHECK(session->contexts.look_up({argument}, &{name}));"]
            elif kind and kind.find:
                lines += [f"{kind.object}* {name} = {kind.find.format(argument)};",
                          f"if ({name} == nullptr) return {kind.otherwise.format(argument)};"]
            elif p.direction == "device":
                lines.append(f"if (!session->valid_device({argument})) "
                             "return CUDA_ERROR_INVALID_DEVICE;")
        return lines

    def _check(self):
        checked = [f"{self.names[p.name]} == nullptr" for p in self.function.params
                   if is_checked(p) and p.name not in self.function.first]
        lines = [f"if ({' || '.join(checked)}) return CUDA_ERROR_INVALID_VALUE;"] if checked else []
        if not self.refuses_at_last:
            lines += [f"OPENMPS_CUDA_CHECK({step});" for step in self._refuse()]
        return lines

    @property
    def refuses_at_last(self):
        return self.function.refuse == "capturing, at last"

    def _refuse(self):
        found = "stream" if self.function.enter == "stream" else "context"
        return [step.format(found=found) for step in REFUSE.get(self.function.refuse, ())]

    def _finish(self):
        function = self.function
        if function.get:
            lines = []
            for p in function.params:
                if p.name in function.get:
                    name = self.names[p.name]
                    guard = f"if ({name} != nullptr) " if p.optional else ""
                    lines.append(f"{guard}*{name} = {function.get[p.name]};")
            return lines + ["return CUDA_SUCCESS;"]
        if function.returns:
            return [f"return {qualified(function.returns)};"]
        call = f"impl::{function.symbol}("
        if self.refuses_at_last:
            checked = wrap(f"OPENMPS_CUDA_CHECK({call}", self.handler_arguments(), "));").split("\n")
            return checked + [f"return {step};" for step in self._refuse()]
        return wrap(f"return {call}", self.handler_arguments(), ");").split("\n")


CALLED = re.compile(r"\b(cu[A-Z]\w*)\(")


def qualified(call):
    """Qualified: the arguments' types are global, so the exported name is found, too."""
    return CALLED.sub(r"impl::\1(", call)


def has_handler(function):
    return bool(function.enter and not function.get and not function.returns)


def client_handlers(functions):
    objects = sorted({kind.object for kind in [*KINDS.values(), CONTEXT, STREAM]} | {"Session"})
    out = [head("The handlers behind the implementations that begin as their description's `enter`\n"
                "says (client_calls.cc): written by hand in src/client, with what has been found and\n"
                "checked. Those with graphs, their nodes or executable graphs hold the lock of graphs,\n"
                "unless they have a stream.",
                pragma=True),
           '#include "api/client_impl.h"\n\nnamespace openmps::client {\n\n']
    out += [f"struct {name};\n" for name in objects]
    out.append("\nnamespace impl {\n\n")
    out += [wrap(f"CUresult {f.symbol}(", Call(f).handler_params(), ");") + "\n"
            for f in functions if has_handler(f)]
    out.append("\n}  // namespace impl\n}  // namespace openmps::client\n")
    return "".join(out)


def client_calls(functions):
    out = [head("Implementations of which the description says how they begin (`enter`), or all that\n"
                "they do (`get`, `returns`). On the program's threads."),
           '#include "api/client_handlers.h"\n#include "base/mutex.h"\n#include "client/entry/entry.h"\n'
           '#include "client/entry/families.h"\n#include "wire/commands/device.h"\n\n'
           '#pragma GCC diagnostic ignored "-Wunused-parameter"\n\n'
           "namespace openmps::client::impl {\n\n"]
    for function in functions:
        if function.base:
            continue
        if function.enter:
            out.append(Call(function).definition())
        elif function.returns:
            out.append(wrap(f"CUresult {function.symbol}(",
                            [p.declaration for p in function.params], ")")
                       + " {\n" + f"  return {qualified(function.returns)};\n" + "}\n\n")
    out.append("}  // namespace openmps::client::impl\n")
    return "".join(out)
