# SPDX-License-Identifier: Apache-2.0
"""messages.h, client_remote.cc and worker_dispatch.{h,cc}: remoting of sync and async functions.

A request is a fixed structure (scalars, structures, handle ids, lengths of strings, one bit per
optional pointer that was given) followed by arrays and strings in the order of the parameters; a
reply is a fixed structure (the result, then scalars and structures) followed by arrays.
"""
from .description import HANDLE_TYPES
from .emit_client import needs_remote
from .text import head, signature, wrap

FIRST_OPCODE = 256  # below are the hand-written messages


class Plan:
    """How one parameter travels."""

    def __init__(self, function, param, index):
        self.param = param
        self.present_bit = index
        d = param.direction
        self.is_device = param.type == "CUdevice" and d == "in"
        self.handle = HANDLE_TYPES.get(param.pointee if param.is_pointer else param.type)
        self.is_array = param.length is not None
        self.request_array = self.is_array and d in ("in", "inout", "handle")
        self.reply_array = self.is_array and d in ("out", "inout", "buffer")
        self.request_field = self._request_field(d)
        self.reply_field = (param.pointee if d in ("out", "inout") and not self.is_array else None)
        self.element = "uint32_t" if d == "handle" else param.pointee
        # Optional pointers and optional strings carry a bit.
        self.optional = param.optional and param.is_pointer

    def _request_field(self, d):
        if self.is_array:
            return None
        if self.is_device or d in ("handle", "new", "release", "string"):
            return "uint32_t"
        if d == "address":
            return "uint64_t"
        if d in ("in", "inout"):
            return self.param.pointee if self.param.is_pointer else self.param.type
        return None


def plans(function):
    return [Plan(function, p, i) for i, p in enumerate(function.params)]


def remote_functions(functions):
    return [f for f in functions if needs_remote(f)]


def has_optional(function):
    return any(p.optional for p in plans(function))


def messages(functions):
    remote = remote_functions(functions)
    out = [head("Opcodes and fixed structures of the generated messages; arrays and strings follow\n"
                "them as message_codec.h says. Both ends come from one build\n"
                "(wire/build.h).",
                pragma=True),
           '#include <cstdint>\n\n#include "api/message_codec.h"\n#include "base/cuda_abi.h"\n\n'
           "namespace openmps {\n\n"
           f"inline constexpr uint16_t kFirstGeneratedOpcode = {FIRST_OPCODE};\n\n"
           "enum class GeneratedOpcode : uint16_t {\n"]
    out += [f"  {f.symbol} = {FIRST_OPCODE + i},\n" for i, f in enumerate(remote)]
    out.append("};\n\nnamespace messages {\n\n")
    for function in remote:
        fields = [f"  {p.request_field} {p.param.name};\n" for p in plans(function)
                  if p.request_field]
        if has_optional(function):
            fields.insert(0, "  uint32_t present;  // bit n: optional parameter n was given\n")
        out.append(f"struct {function.symbol}_request {{\n" + "".join(fields) + "};\n")
        if function.cls == "sync":
            reply = [f"  {p.reply_field} {p.param.name};\n" for p in plans(function)
                     if p.reply_field]
            out.append(f"struct {function.symbol}_reply {{\n  CUresult result;\n"
                       + "".join(reply) + "};\n")
        out.append("\n")
    out.append("}  // namespace messages\n}  // namespace openmps\n")
    return "".join(out)


def _count(plan, source):
    """Statement that computes n_<name>; `source` prefixes the counting parameter."""
    length, name = plan.param.length, plan.param.name
    if length.constant is not None:
        return f"  const size_t n_{name} = {length.constant};\n", None
    call = wrap("  if (!message_length(", [
        f"static_cast<int64_t>({source}{length.parameter})", str(length.multiplier),
        str(length.subtrahend), f"&n_{name}"], "))")
    return f"  size_t n_{name} = 0;\n{call}\n", length


# ---- Client --------------------------------------------------------------------------------------

def client_remote(functions):
    out = [head("Client side of the generated messages: checks pointers, writes the request, waits\n"
                "for the reply, copies outputs. Outputs are untouched on failure. Any thread."),
           '#include <cstring>\n\n#include "api/client_impl.h"\n#include "api/messages.h"\n\n'
           "namespace openmps::client::impl {\n\n"]
    for function in remote_functions(functions):
        out.append(_client_function(function))
    out.append("}  // namespace openmps::client::impl\n")
    return "".join(out)


def _client_function(function):
    all_plans = plans(function)
    new = next((p for p in all_plans if p.param.direction == "new"), None)
    released = next((p for p in all_plans if p.param.direction == "release"), None)
    body = []
    for p in all_plans:
        if p.param.is_pointer and not p.optional and p.param.direction != "address" \
                and not p.is_array:
            body.append(f"  if ({p.param.name} == nullptr) return CUDA_ERROR_INVALID_VALUE;\n")
    for p in all_plans:
        if p.is_array:
            text, length = _count(p, "")
            body.append(text + ("    return CUDA_ERROR_INVALID_VALUE;\n" if length else ""))
            if not p.optional:
                body.append(f"  if ({p.param.name} == nullptr && n_{p.param.name} != 0)\n"
                            "    return CUDA_ERROR_INVALID_VALUE;\n")
    body.append(f"  messages::{function.symbol}_request fixed;\n"
                "  memset(&fixed, 0, sizeof(fixed));\n")
    for p in all_plans:
        body.append(_client_field(p))
    sizes = ["sizeof(fixed)"]
    for p in all_plans:
        if p.request_array:
            sizes.append(_array_bytes(p))
        elif p.param.direction == "string":
            sizes.append(f"fixed.{p.param.name}")
    body.append(wrap("  MessageBuffer request(message_bytes({", sizes, "}));")
                + "\n  if (request.status() != CUDA_SUCCESS) return request.status();\n"
                "  MessageWriter writer(request.data());\n"
                "  writer.append(&fixed, sizeof(fixed));\n")
    for p in all_plans:
        body.append(_client_append(p))
    if new:
        # Minted last, so that no earlier return leaves a handle without object behind. The id
        # goes into the request that is already written.
        name = new.param.name
        body.append(f"  {new.param.pointee} minted = nullptr;\n"
                    f"  if (CUresult error = mint_handle(&minted, &fixed.{name}))\n"
                    "    return error;\n"
                    "  memcpy(request.data(), &fixed, sizeof(fixed));\n")
    body.append("  constexpr auto kOpcode = "
                f"static_cast<uint16_t>(GeneratedOpcode::{function.symbol});\n")
    if function.cls == "async":
        body.append("  const CUresult result = remote_post(kOpcode, request.data(), "
                    "request.size());\n")
    else:
        body.append(_client_reply(all_plans, function))
    if new:
        body.append("  if (result != CUDA_SUCCESS) {\n    drop_handle(minted);\n"
                    f"    return result;\n  }}\n  *{new.param.name} = minted;\n")
    elif released:
        body.append(f"  if (result == CUDA_SUCCESS) drop_handle({released.param.name});\n")
    body.append("  return result;\n")
    return signature(function) + " {\n" + "".join(body) + "}\n\n"


def _client_field(p):
    name, d = p.param.name, p.param.direction
    out = f"  if ({name} != nullptr) fixed.present |= 1u << {p.present_bit};\n" \
        if p.optional else ""
    if p.is_device:
        return out + (f"  if (CUresult error = device_to_wire({name}, &fixed.{name}))\n"
                      "    return error;\n")
    if p.is_array or d == "new":
        return out
    if d in ("handle", "release"):
        return out + (f"  if (CUresult error = handle_to_wire({name}, &fixed.{name}))\n"
                      "    return error;\n")
    if d == "string":
        guard = f"if ({name} != nullptr) " if p.optional else ""
        return out + (f"  {guard}fixed.{name} =\n"
                      f"      static_cast<uint32_t>(strnlen({name}, kMaxMessageBytes) + 1);\n")
    if d == "address":
        return out + f"  fixed.{name} = reinterpret_cast<uint64_t>({name});\n"
    if d in ("in", "inout"):
        if not p.param.is_pointer:
            return out + f"  fixed.{name} = {name};\n"
        guard = f"if ({name} != nullptr) " if p.optional else ""
        return out + f"  {guard}fixed.{name} = *{name};\n"
    return out


def _client_append(p):
    name = p.param.name
    guard = f"if ({name} != nullptr) " if p.optional else ""
    if p.request_array and p.param.direction == "handle":
        return (f"  {guard}{{\n    MessageBuffer ids(n_{name} * sizeof(uint32_t));\n"
                "    if (ids.status() != CUDA_SUCCESS) return ids.status();\n"
                f"    auto* id = reinterpret_cast<uint32_t*>(ids.data());\n"
                f"    for (size_t i = 0; i < n_{name}; ++i)\n"
                f"      if (CUresult error = handle_to_wire({name}[i], &id[i])) return error;\n"
                "    writer.append(ids.data(), ids.size());\n  }\n")
    if p.request_array:
        return f"  {guard}writer.append({name}, n_{name} * sizeof({p.element}));\n"
    if p.param.direction == "string":
        return f"  {guard}writer.append({name}, fixed.{name});\n"
    return ""


def _array_bytes(p):
    condition = f"{p.param.name} == nullptr ? 0 : " if p.optional else ""
    return f"{condition}n_{p.param.name} * sizeof({p.element})"


def _client_reply(all_plans, function):
    # Who names a device needs no context that would.
    about_device = any(p.type == "CUdevice" for p in function.params)
    call = "remote_device_call" if about_device else "remote_call"
    sizes = [f"sizeof(messages::{function.symbol}_reply)"]
    sizes += [_array_bytes(p) for p in all_plans if p.reply_array]
    out = [wrap("  MessageBuffer reply(message_bytes({", sizes, "}));") + "\n",
           "  CUresult result = reply.status();\n  size_t reply_bytes = 0;\n"
           "  if (result == CUDA_SUCCESS)\n"
           f"    result = {call}(kOpcode, request.data(), request.size(), reply.data(),\n"
           f"{' ' * len(f'    result = {call}(')}reply.size(), &reply_bytes);\n"
           f"  messages::{function.symbol}_reply answer;\n"
           "  memset(&answer, 0, sizeof(answer));\n"
           "  MessageReader reader(reply.data(), reply_bytes);\n"
           "  if (result == CUDA_SUCCESS) {\n"
           "    result = reader.read_fixed(&answer) ? answer.result : CUDA_ERROR_MPS_RPC_FAILURE;\n"
           "  }\n"]
    arrays = [p for p in all_plans if p.reply_array]
    for p in arrays:
        name = p.param.name
        given = f" && {name} != nullptr" if p.optional else ""
        out.append(f"  const {p.element}* r_{name} = nullptr;\n"
                   f"  if (result == CUDA_SUCCESS{given} &&\n"
                   f"      !reader.read_array(n_{name}, &r_{name}))\n"
                   "    result = CUDA_ERROR_MPS_RPC_FAILURE;\n")
    writes = []
    for p in all_plans:
        name = p.param.name
        guard = f"if ({name} != nullptr) " if p.optional else ""
        if p.reply_field:
            writes.append(f"    {guard}*{name} = answer.{name};\n")
        elif p.reply_array:
            guard = f"if (n_{name} != 0" + (f" && {name} != nullptr" if p.optional else "") + ") "
            writes.append(f"    {guard}memcpy({name}, r_{name}, n_{name} * sizeof({p.element}));\n")
    if writes:
        out.append("  if (result == CUDA_SUCCESS) {\n" + "".join(writes) + "  }\n")
    return "".join(out)


# ---- Worker --------------------------------------------------------------------------------------

def worker_dispatch_header():
    return head("Executes generated messages of a session on the driver below. Runs on the\n"
                "session's executor thread.", pragma=True) + """\
#include <cstddef>
#include <cstdint>

#include "api/driver_table.h"
#include "api/messages.h"
#include "api/worker_session.h"

namespace openmps {

// Decodes and checks the request, translates handles through `session`, calls the driver and
// writes the reply. `request` and `reply` must be aligned to kMessageAlignment, must not be
// visible to the client, and reply needs kMaxMessageBytes. The session's context must be current.
DispatchOutcome dispatch_generated(const DriverTable& driver, HandleResolver& session,
                                   uint16_t opcode, const void* request, size_t request_bytes,
                                   void* reply);

// "cuFuncGetAttribute", or null if the opcode is not a generated one. For the log.
const char* generated_opcode_name(uint16_t opcode);

}  // namespace openmps
"""


def worker_dispatch(functions):
    remote = remote_functions(functions)
    out = [head("Worker side of the generated messages: one function per message, always the same\n"
                "steps: decode, check, resolve handles, call the driver, encode the reply."),
           '#include "api/worker_dispatch.h"\n\n#include <cstring>\n#include <iterator>\n\n'
           "namespace openmps {\nnamespace {\n\n" + _WORKER_RUNTIME]
    for function in remote:
        out.append(_worker_function(function))
    out.append("constexpr struct {\n  const char* name;\n"
               "  DispatchOutcome (*run)(Call& call);\n} kHandlers[] = {\n")
    out += [f'    {{"{f.symbol}", run_{f.symbol}}},\n' for f in remote]
    if not remote:
        out.append("    {nullptr, nullptr},\n")
    out.append("};\n\n}  // namespace\n\n" + _WORKER_DISPATCH)
    return "".join(out)


_WORKER_RUNTIME = """// One message on its way through the five steps.
struct Call {
  const DriverTable& driver;
  HandleResolver& session;
  MessageReader request;
  unsigned char* reply;
};

DispatchOutcome violation(const char* what) { return {what, CUDA_ERROR_INVALID_VALUE, 0}; }

// The answer of a call that did not reach the driver: the reply's first member is the result.
[[maybe_unused]] DispatchOutcome refuse(Call& call, CUresult result, size_t reply_size) {
  const size_t reply_bytes = align_message(reply_size);
  if (reply_bytes != 0) {
    memset(call.reply, 0, reply_bytes);
    memcpy(call.reply, &result, sizeof(result));
  }
  return {nullptr, result, reply_bytes};
}

template <typename Handle>
[[maybe_unused]] CUresult resolve(Call& call, HandleType type, uint32_t id, Handle* handle) {
  void* found = nullptr;
  const CUresult result = call.session.resolve(type, id, &found);
  *handle = static_cast<Handle>(found);
  return result;
}

"""

_WORKER_DISPATCH = """DispatchOutcome dispatch_generated(const DriverTable& driver, HandleResolver& session,
                                   uint16_t opcode, const void* request, size_t request_bytes,
                                   void* reply) {
  if (generated_opcode_name(opcode) == nullptr) return violation("unknown opcode");
  Call call{driver, session, MessageReader(request, request_bytes),
            static_cast<unsigned char*>(reply)};
  return kHandlers[opcode - kFirstGeneratedOpcode].run(call);
}

const char* generated_opcode_name(uint16_t opcode) {
  if (opcode < kFirstGeneratedOpcode) return nullptr;
  const size_t index = opcode - kFirstGeneratedOpcode;
  return index < std::size(kHandlers) ? kHandlers[index].name : nullptr;
}

}  // namespace openmps
"""


def _worker_function(function):
    all_plans = plans(function)
    sync = function.cls == "sync"
    reply_type = f"messages::{function.symbol}_reply"
    refused = f"sizeof({reply_type})" if sync else "0"
    body = [f"  messages::{function.symbol}_request fixed;\n"
            "  if (!call.request.read_fixed(&fixed)) return violation(\"request too short\");\n"]
    for p in all_plans:
        body.append(_worker_decode(p))
    body.append("  if (!call.request.at_end()) return violation(\"request too long\");\n")
    for p in all_plans:
        body.append(_worker_resolve(p, refused))
    if sync:
        body.append(f"  {reply_type} answer;\n  memset(&answer, 0, sizeof(answer));\n"
                    "  size_t reply_bytes = align_message(sizeof(answer));\n")
    for p in all_plans:
        body.append(_worker_output(p))
    name = f"call.driver.{function.symbol}"
    body.append(f"  if ({name} == nullptr)\n"
                f"    return refuse(call, CUDA_ERROR_NOT_SUPPORTED, {refused});\n")
    arguments = [_worker_argument(p) for p in all_plans]
    body.append(wrap(f"  {'' if needs_result(all_plans) else 'const '}CUresult result = {name}(",
                     arguments, ");") + "\n")
    for p in all_plans:
        kind = p.handle
        if p.param.direction == "new":
            body.append("  if (result == CUDA_SUCCESS)\n"
                        f"    result = call.session.bind(HandleType::{kind}, "
                        f"fixed.{p.param.name}, h_{p.param.name});\n")
        elif p.param.direction == "release":
            body.append("  if (result == CUDA_SUCCESS)\n"
                        f"    call.session.release(HandleType::{kind}, fixed.{p.param.name});\n")
    if sync:
        body.append("  answer.result = result;\n"
                    "  memcpy(call.reply, &answer, sizeof(answer));\n"
                    "  return {nullptr, result, reply_bytes};\n")
    else:
        body.append("  return {nullptr, result, 0};\n")
    return f"DispatchOutcome run_{function.symbol}(Call& call) {{\n" + "".join(body) + "}\n\n"


def needs_result(all_plans):
    return any(p.param.direction == "new" for p in all_plans)


def _given(p):
    return f"(fixed.present & (1u << {p.present_bit})) != 0"


def _worker_decode(p):
    name = p.param.name
    out = ""
    if p.is_array:
        text, length = _count(p, "fixed.")
        out = text + ("    return violation(\"length out of range\");\n" if length else "")
    if p.request_array:
        condition = f"{_given(p)} &&\n      " if p.optional else ""
        out += (f"  const {p.element}* a_{name} = nullptr;\n"
                f"  if ({condition}!call.request.read_array(n_{name}, &a_{name}))\n"
                "    return violation(\"array too short\");\n")
    elif p.param.direction == "string":
        condition = f"{_given(p)} &&\n      " if p.optional else ""
        out += (f"  const char* s_{name} = nullptr;\n"
                f"  if ({condition}!call.request.read_string(fixed.{name}, &s_{name}))\n"
                "    return violation(\"string too short or not terminated\");\n")
    return out


def _worker_resolve(p, refused):
    name, d = p.param.name, p.param.direction
    if p.is_device:
        return (f"  CUdevice d_{name} = 0;\n"
                f"  if (CUresult error = call.session.resolve_device(fixed.{name}, &d_{name}))\n"
                f"    return refuse(call, error, {refused});\n")
    if d == "handle" and p.is_array:
        handle = p.param.pointee
        return (f"  MessageBuffer handles_{name}(n_{name} * sizeof({handle}));\n"
                f"  if (handles_{name}.status() != CUDA_SUCCESS)\n"
                f"    return refuse(call, handles_{name}.status(), {refused});\n"
                f"  auto* h_{name} = reinterpret_cast<{handle}*>(handles_{name}.data());\n"
                f"  for (size_t i = 0; a_{name} != nullptr && i < n_{name}; ++i)\n"
                f"    if (CUresult error =\n"
                f"            resolve(call, HandleType::{p.handle}, a_{name}[i], &h_{name}[i]))\n"
                f"      return refuse(call, error, {refused});\n")
    if d in ("handle", "release"):
        return (f"  {p.param.type} h_{name} = nullptr;\n"
                f"  if (CUresult error =\n"
                f"          resolve(call, HandleType::{p.handle}, fixed.{name}, &h_{name}))\n"
                f"    return refuse(call, error, {refused});\n")
    if d == "new":
        return f"  {p.param.pointee} h_{name} = nullptr;\n"
    return ""


def _worker_output(p):
    """Room for output arrays inside the reply; inout starts from what was sent."""
    name = p.param.name
    if p.reply_field and p.param.direction == "inout":
        return f"  answer.{name} = fixed.{name};\n"
    if not p.reply_array:
        return ""
    bytes_ = f"n_{name} * sizeof({p.element})"
    condition = f"{_given(p)} && " if p.optional else ""
    copy = (f"    if (a_{name} != nullptr) memcpy(o_{name}, a_{name}, {bytes_});\n"
            if p.param.direction == "inout" else "")
    opening = f"  if ({_given(p)}) {{\n" if condition else "  {\n"
    return (f"  {p.element}* o_{name} = nullptr;\n{opening}"
            f"    static_assert(alignof({p.element}) <= kMessageAlignment);\n"
            f"    if ({bytes_} > kMaxMessageBytes - reply_bytes)\n"
            "      return violation(\"reply too long\");\n"
            f"    o_{name} = reinterpret_cast<{p.element}*>(call.reply + reply_bytes);\n"
            f"    memset(o_{name}, 0, {bytes_});\n{copy}"
            f"    reply_bytes += align_message({bytes_});\n  }}\n")


def _worker_argument(p):
    name, d = p.param.name, p.param.direction
    if p.is_device:
        return f"d_{name}"
    if d == "new":
        return f"&h_{name}"
    if d == "handle" and p.is_array:
        return f"a_{name} != nullptr ? h_{name} : nullptr" if p.optional else f"h_{name}"
    if d in ("handle", "release"):
        return f"h_{name}"
    if d == "string":
        return f"s_{name}"
    if d == "address":
        return f"reinterpret_cast<{p.param.type}>(fixed.{name})"
    if p.reply_array:
        return f"o_{name}"
    if p.request_array:
        # Where the prototype forgot const the array is the session's own copy of the message.
        return f"a_{name}" if p.param.type.startswith("const ") else \
            f"const_cast<{p.param.type}>(a_{name})"
    if p.reply_field:
        value = f"&answer.{name}"
        return f"{_given(p)} ? {value} : nullptr" if p.optional else value
    if p.param.is_pointer:
        value = f"&fixed.{name}"
        return f"{_given(p)} ? {value} : nullptr" if p.optional else value
    return f"fixed.{name}"
