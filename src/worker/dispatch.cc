// SPDX-License-Identifier: Apache-2.0
// The table of commands. See dispatch.h.
#include "worker/dispatch.h"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "api/worker_dispatch.h"
#include "wire/decode.h"
#include "worker/driver_check.h"

namespace openmps::worker {
namespace {

using wire::Opcode;
using wire::Variable;

template <typename T>
using Handler = Status (*)(SessionParts&, const T&);
using Thunk = Status (*)(SessionParts&, const wire::Record&, ReplyWriter&);

template <typename T, Handler<T> handler>
Status to_session(SessionParts& session, const wire::Record& record, ReplyWriter&) {
  const T* body = nullptr;
  Variable nothing;
  OPENMPS_RETURN_IF_ERROR(wire::decode(record, &body, &nothing));
  return handler(session, *body);
}

// The command that a part's method takes: its first parameter; for an id alone, ObjectOnly.
template <typename Method>
struct CommandOf;
template <typename Part, typename First, typename... Rest>
struct CommandOf<Status (Part::*)(First, Rest...)> {
  using Type = std::conditional_t<std::is_same_v<First, wire::Id>, wire::ObjectOnly,
                                  std::remove_cvref_t<First>>;
};

// The same steps for a command that is one part's own: the method gets what it asks for of the
// struct, the bytes behind it and the reply.
template <auto part, auto method>
Status to_part(SessionParts& session, const wire::Record& record, ReplyWriter& reply) {
  using Command = typename CommandOf<decltype(method)>::Type;
  const Command* body = nullptr;
  Variable variable;
  OPENMPS_RETURN_IF_ERROR(wire::decode(record, &body, &variable));
  auto& object = session.*part;
  using Object = decltype(object);
  using Method = decltype(method);
  if constexpr (std::is_invocable_v<Method, Object, wire::Id>) {
    return (object.*method)(body->id);
  } else if constexpr (std::is_invocable_v<Method, Object, wire::Id, ReplyWriter&>) {
    return (object.*method)(body->id, reply);
  } else if constexpr (std::is_invocable_v<Method, Object, const Command&>) {
    return (object.*method)(*body);
  } else if constexpr (std::is_invocable_v<Method, Object, const Command&, Variable>) {
    return (object.*method)(*body, variable);
  } else if constexpr (std::is_invocable_v<Method, Object, const Command&, ReplyWriter&>) {
    return (object.*method)(*body, reply);
  } else {
    return (object.*method)(*body, variable, reply);
  }
}

// ---- Handlers that involve more than one part --------------------------------------------------

Status ping(SessionParts&, const wire::Nothing&) { return Status(); }

Status fence(SessionParts& s, const wire::Fence& c) {
  Stream* stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(s.streams.get(c.stream, &stream));
  const bool in_order = (c.slot & wire::kFenceInOrder) != 0;
  OPENMPS_RETURN_IF_ERROR(
      s.streams.enter(*stream, in_order ? Streams::Entry::kMarker : Streams::Entry::kFence));
  return s.fences.write(*stream, c.slot & ~wire::kFenceInOrder, c.value);
}

Status event_record(SessionParts& s, const wire::EventRecord& c) {
  Stream* stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(s.streams.get(c.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(s.streams.enter(*stream, Streams::Entry::kMarker));
  OPENMPS_RETURN_IF_ERROR(s.events.record(c, *stream));
  if (c.slot == wire::kNoFence) return Status();
  return s.fences.write(*stream, c.slot, c.value);
}

// What the session has given up and no longer uses is there for it again.
Status memory_map(SessionParts& s, const wire::MemoryRange& c) {
  s.retirement.sweep();
  return s.memory.map(c);
}
Status physical_create(SessionParts& s, const wire::PhysicalCreate& c) {
  s.retirement.sweep();
  return s.physical.create(c);
}
Status array_create(SessionParts& s, const wire::ArrayCreate& c) {
  s.retirement.sweep();
  return s.arrays.create(c);
}

// The client says that the range is idle. Work that still used it would fault, for everybody.
Status memory_unmap(SessionParts& s, const wire::MemoryRange& c) {
  if ((c.flags & wire::kUnmapAtOnce) != 0) return s.memory.unmap(c);
  uint64_t ticket = 0;
  OPENMPS_RETURN_IF_ERROR(s.memory.begin_unmap(c, &ticket));
  s.retirement.add([&s, c, ticket] {
    s.memory.finish_unmap(c, ticket);
    s.core.view.header().unmapped.store(ticket, std::memory_order_release);
    wake_client(s.core.view.header());
  });
  return Status();
}

Status host_unregister(SessionParts& s, const wire::MemoryRange& c) {
  uint64_t ticket = 0;
  OPENMPS_RETURN_IF_ERROR(s.memory.begin_unregister(c, &ticket));
  s.retirement.add([&s, c, ticket] { s.memory.finish_unregister(c, ticket); });
  return Status();
}

// Values that a stream writes and waits for, alone or as a batch.
Status check_values(SessionParts& s, std::span<const wire::ValueOperation> operations) {
  for (const wire::ValueOperation& operation : operations) {
    OPENMPS_RETURN_IF_ERROR(check_value(operation));
    OPENMPS_RETURN_IF_ERROR(
        s.memory.check_operand(range_of(operation), "address of a stream value"));
  }
  return Status();
}

template <wire::ValueKind kind>
Status stream_value(SessionParts& s, const wire::StreamValue& c) {
  const wire::ValueOperation operation{c, static_cast<uint32_t>(kind), 0};
  OPENMPS_RETURN_IF_ERROR(check_values(s, {&operation, 1}));
  return s.fences.value(operation);
}

Status stream_batch(SessionParts& s, const wire::Record& record, ReplyWriter&) {
  const wire::StreamBatch* c = nullptr;
  Variable variable;
  OPENMPS_RETURN_IF_ERROR(wire::decode(record, &c, &variable));
  const std::span operations(reinterpret_cast<const wire::ValueOperation*>(variable.data()),
                             c->count);
  OPENMPS_RETURN_IF_ERROR(check_values(s, operations));
  return s.fences.batch(c->stream, operations);
}

Status output_flush(SessionParts& s, const wire::Record&, ReplyWriter& reply) {
  return s.prints.flush(reply);
}

// Memory whose last user has ended is free, also if nobody has looked since.
Status memory_info(SessionParts& s, const wire::Record& record, ReplyWriter& reply) {
  s.retirement.sweep();
  return to_part<&SessionParts::memory, &SessionMemory::info>(s, record, reply);
}

Status graph_launch(SessionParts& s, const wire::GraphLaunch& c) {
  Stream* stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(s.streams.get(c.stream, &stream));
  s.prints.before_graph();
  Status launched = s.graphs.launch(c);  // makes the driver's stream, if it is the first use
  return s.prints.after_graph(std::move(launched), stream->handle, stream->device);
}

Status module_unload(SessionParts& s, const wire::ObjectOnly& c) {
  s.graphs.lose_functions(s.modules.functions_of(c.id));
  return s.modules.unload(c.id);
}

Status green_destroy(SessionParts& s, const wire::ObjectOnly& c) {
  GreenContext* found = nullptr;
  OPENMPS_RETURN_IF_ERROR(s.greens.get(c.id, &found));
  if (found->streams != 0) return violation("a green context that still has streams");
  std::shared_ptr<GreenContext> green;
  OPENMPS_RETURN_IF_ERROR(s.greens.take(c.id, &green));
  s.streams.end_green(*green);
  s.retirement.add([&s, green] {
    s.streams.drop_green(*green);
    s.greens.destroy(*green);
  });
  return Status();
}

Status context_reset(SessionParts& s, const wire::ContextOnly& c) {
  OPENMPS_RETURN_IF_ERROR(s.core.check_device(c.device));
  s.streams.drop_context(c.context);
  return Status();
}

// Commands of api/messages.h, in their frame.
Status generated(SessionParts& s, const wire::Record& record, ReplyWriter& reply) {
  const wire::Generated* frame = nullptr;
  Variable request;
  OPENMPS_RETURN_IF_ERROR(wire::decode(record, &frame, &request));
  const wire::Generated& c = *frame;
  OPENMPS_RETURN_IF_ERROR(s.core.check_device(c.device));
  OPENMPS_RETURN_IF_ERROR(s.core.use(c.device));
  if (s.generated_reply == nullptr) {
    s.generated_reply = std::make_unique<unsigned char[]>(kMaxMessageBytes);
  }
  s.handles.begin(c.device);
  const DispatchOutcome outcome =
      dispatch_generated(s.core.driver, s.handles, static_cast<uint16_t>(record.opcode),
                         request.data(), request.size(), s.generated_reply.get());
  if (outcome.violation != nullptr) return violation(outcome.violation);
  if (outcome.reply_bytes > reply.room()) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  "a reply of " + std::to_string(outcome.reply_bytes) + " bytes");
  }
  reply.append(s.generated_reply.get(), outcome.reply_bytes);
  // The call's own result travels inside the reply, if it has one.
  if (outcome.reply_bytes != 0 && !is_sticky(outcome.result)) return Status();
  return check(outcome.result, generated_opcode_name(static_cast<uint16_t>(record.opcode)));
}

// ---- The table ---------------------------------------------------------------------------------

struct Entry {
  const char* name = "";
  Thunk thunk = nullptr;
};
constexpr size_t kOpcodes = static_cast<size_t>(Opcode::kLinkDestroy) + 1;

constexpr std::array<Entry, kOpcodes> make_table() {
  std::array<Entry, kOpcodes> table{};
  const auto set = [&table](Opcode opcode, Entry entry) {
    table[static_cast<size_t>(opcode)] = entry;
  };
  using S = SessionParts;
  set(Opcode::kPing, {"Ping", to_session<wire::Nothing, ping>});
  set(Opcode::kLaunch, {"Launch", to_part<&S::launches, &Launches::launch>});
  set(Opcode::kMemcpy, {"Memcpy", to_part<&S::copies, &Copies::copy>});
  set(Opcode::kMemcpy3D, {"Memcpy3D", to_part<&S::copies, &Copies::copy_3d>});
  set(Opcode::kMemset, {"Memset", to_part<&S::copies, &Copies::fill>});
  set(Opcode::kFence, {"Fence", to_session<wire::Fence, fence>});
  set(Opcode::kWakeAfter, {"WakeAfter", to_part<&S::fences, &Fences::wake_after>});
  set(Opcode::kStreamCreate, {"StreamCreate", to_part<&S::streams, &Streams::create>});
  set(Opcode::kStreamDestroy, {"StreamDestroy", to_part<&S::streams, &Streams::destroy>});
  set(Opcode::kEventCreate, {"EventCreate", to_part<&S::events, &Events::create>});
  set(Opcode::kEventDestroy, {"EventDestroy", to_part<&S::events, &Events::destroy>});
  set(Opcode::kEventRecord, {"EventRecord", to_session<wire::EventRecord, event_record>});
  set(Opcode::kStreamWaitEvent, {"StreamWaitEvent", to_part<&S::events, &Events::wait>});
  set(Opcode::kEventElapsed, {"EventElapsed", to_part<&S::events, &Events::elapsed>});
  set(Opcode::kMemoryMap, {"MemoryMap", to_session<wire::MemoryRange, memory_map>});
  set(Opcode::kMemoryUnmap, {"MemoryUnmap", to_session<wire::MemoryRange, memory_unmap>});
  set(Opcode::kHostRegister, {"HostRegister", to_part<&S::memory, &SessionMemory::register_host>});
  set(Opcode::kHostUnregister, {"HostUnregister", to_session<wire::MemoryRange, host_unregister>});
  set(Opcode::kBlobBegin, {"BlobBegin", to_part<&S::modules, &Modules::begin_blob>});
  set(Opcode::kBlobData, {"BlobData", to_part<&S::modules, &Modules::append_blob>});
  set(Opcode::kModuleLoad, {"ModuleLoad", to_part<&S::modules, &Modules::load>});
  set(Opcode::kModuleUnload, {"ModuleUnload", to_session<wire::ObjectOnly, module_unload>});
  set(Opcode::kGetFunction, {"GetFunction", to_part<&S::modules, &Modules::get_function>});
  set(Opcode::kGetGlobal, {"GetGlobal", to_part<&S::modules, &Modules::get_global>});
  set(Opcode::kHostFunction, {"HostFunction", to_part<&S::fences, &Fences::host_function>});
  set(Opcode::kMemoryInfo, {"MemoryInfo", memory_info});
  set(Opcode::kStreamWriteValue,
      {"StreamWriteValue", to_session<wire::StreamValue, stream_value<wire::ValueKind::kWrite>>});
  set(Opcode::kStreamWaitValue,
      {"StreamWaitValue", to_session<wire::StreamValue, stream_value<wire::ValueKind::kWait>>});
  set(Opcode::kStreamBatch, {"StreamBatch", stream_batch});
  set(Opcode::kConditionCreate,
      {"ConditionCreate", to_part<&S::graphs, &Graphs::create_condition>});
  set(Opcode::kGraphForget, {"GraphForget", to_part<&S::graphs, &Graphs::forget>});
  set(Opcode::kGraphBegin, {"GraphBegin", to_part<&S::graphs, &Graphs::begin>});
  set(Opcode::kGraphNode, {"GraphNode", to_part<&S::graphs, &Graphs::node>});
  set(Opcode::kGraphInstantiate, {"GraphInstantiate", to_part<&S::graphs, &Graphs::instantiate>});
  set(Opcode::kGraphLaunch, {"GraphLaunch", to_session<wire::GraphLaunch, graph_launch>});
  set(Opcode::kGraphUpdate, {"GraphUpdate", to_part<&S::graphs, &Graphs::update>});
  set(Opcode::kGraphSetNode, {"GraphSetNode", to_part<&S::graphs, &Graphs::set_node>});
  set(Opcode::kGraphEnableNode, {"GraphEnableNode", to_part<&S::graphs, &Graphs::enable_node>});
  set(Opcode::kGraphExecDestroy, {"GraphExecDestroy", to_part<&S::graphs, &Graphs::destroy>});
  set(Opcode::kGraphUpload, {"GraphUpload", to_part<&S::graphs, &Graphs::upload>});
  set(Opcode::kFunctionSetAttribute,
      {"FunctionSetAttribute", to_part<&S::modules, &Modules::set_attribute>});
  set(Opcode::kFunctionGetAttribute,
      {"FunctionGetAttribute", to_part<&S::modules, &Modules::get_attribute>});
  set(Opcode::kOccupancy, {"Occupancy", to_part<&S::modules, &Modules::occupancy>});
  set(Opcode::kModuleSymbols, {"ModuleSymbols", to_part<&S::modules, &Modules::symbols>});
  set(Opcode::kClusterOccupancy,
      {"ClusterOccupancy", to_part<&S::modules, &Modules::cluster_occupancy>});
  set(Opcode::kModuleFunctions,
      {"ModuleFunctions", to_part<&S::modules, &Modules::function_names>});
  set(Opcode::kAddressReserve, {"AddressReserve", to_part<&S::memory, &SessionMemory::reserve>});
  set(Opcode::kAddressFree, {"AddressFree", to_part<&S::memory, &SessionMemory::free_addresses>});
  set(Opcode::kPhysicalCreate,
      {"PhysicalCreate", to_session<wire::PhysicalCreate, physical_create>});
  set(Opcode::kPhysicalRelease,
      {"PhysicalRelease", to_part<&S::physical, &PhysicalObjects::release>});
  set(Opcode::kPhysicalMap, {"PhysicalMap", to_part<&S::physical, &PhysicalObjects::map>});
  set(Opcode::kMemoryAccess, {"MemoryAccess", to_part<&S::memory, &SessionMemory::set_access>});
  set(Opcode::kPhysicalExport,
      {"PhysicalExport", to_part<&S::physical, &PhysicalObjects::export_descriptor>});
  set(Opcode::kRangeExport, {"RangeExport", to_part<&S::physical, &PhysicalObjects::export_range>});
  set(Opcode::kPhysicalImport,
      {"PhysicalImport", to_part<&S::physical, &PhysicalObjects::import_descriptor>});
  set(Opcode::kMemoryPublish, {"MemoryPublish", to_part<&S::sharing, &Sharing::publish_memory>});
  set(Opcode::kMemoryWithdraw, {"MemoryWithdraw", to_part<&S::sharing, &Sharing::withdraw>});
  set(Opcode::kMemoryOpen, {"MemoryOpen", to_part<&S::sharing, &Sharing::open_memory>});
  set(Opcode::kEventPublish, {"EventPublish", to_part<&S::sharing, &Sharing::publish_event>});
  set(Opcode::kEventOpen, {"EventOpen", to_part<&S::sharing, &Sharing::open_event>});
  set(Opcode::kEventQuery, {"EventQuery", to_part<&S::events, &Events::query>});
  set(Opcode::kPeerAccess, {"PeerAccess", to_part<&S::memory, &SessionMemory::peer_access>});
  set(Opcode::kLinkCreate, {"LinkCreate", to_part<&S::links, &Links::create>});
  set(Opcode::kLinkAdd, {"LinkAdd", to_part<&S::links, &Links::add>});
  set(Opcode::kLinkComplete, {"LinkComplete", to_part<&S::links, &Links::complete>});
  set(Opcode::kLinkRead, {"LinkRead", to_part<&S::links, &Links::read>});
  set(Opcode::kLinkDestroy, {"LinkDestroy", to_part<&S::links, &Links::destroy>});
  set(Opcode::kDeviceResource, {"DeviceResource", to_part<&S::greens, &GreenContexts::resource>});
  set(Opcode::kResourceSplit, {"ResourceSplit", to_part<&S::greens, &GreenContexts::split>});
  set(Opcode::kResourceRead, {"ResourceRead", to_part<&S::greens, &GreenContexts::read_split>});
  set(Opcode::kResourceDescribe,
      {"ResourceDescribe", to_part<&S::greens, &GreenContexts::describe>});
  set(Opcode::kGreenCreate, {"GreenCreate", to_part<&S::greens, &GreenContexts::create>});
  set(Opcode::kGreenDestroy, {"GreenDestroy", to_session<wire::ObjectOnly, green_destroy>});
  set(Opcode::kContextJoin, {"ContextJoin", to_part<&S::streams, &Streams::join>});
  set(Opcode::kContextFollow, {"ContextFollow", to_part<&S::streams, &Streams::follow>});
  set(Opcode::kOutputFlush, {"OutputFlush", output_flush});
  set(Opcode::kArrayCreate, {"ArrayCreate", to_session<wire::ArrayCreate, array_create>});
  set(Opcode::kArrayPart, {"ArrayPart", to_part<&S::arrays, &Arrays::part>});
  set(Opcode::kArrayDestroy, {"ArrayDestroy", to_part<&S::arrays, &Arrays::destroy>});
  set(Opcode::kMipmappedDestroy,
      {"MipmappedDestroy", to_part<&S::arrays, &Arrays::destroy_mipmapped>});
  set(Opcode::kArrayCopy, {"ArrayCopy", to_part<&S::arrays, &Arrays::copy>});
  set(Opcode::kImageCreate, {"ImageCreate", to_part<&S::arrays, &Arrays::create_image>});
  set(Opcode::kImageDestroy, {"ImageDestroy", to_part<&S::arrays, &Arrays::destroy_image>});
  set(Opcode::kLimitGet, {"LimitGet", to_part<&S::limits, &Limits::get>});
  set(Opcode::kLimitRaise, {"LimitRaise", to_part<&S::limits, &Limits::raise>});
  set(Opcode::kContextReset, {"ContextReset", to_session<wire::ContextOnly, context_reset>});
  return table;
}

constexpr std::array<Entry, kOpcodes> kTable = make_table();

}  // namespace

Status dispatch(SessionParts& session, const wire::Record& record, ReplyWriter& reply) {
  // Whatever the command submitted has been submitted when it returns.
  const ContextGate::Leaving leaving(session.core.feeder);
  const auto opcode = static_cast<size_t>(record.opcode);
  if (record.opcode >= Opcode::kFirstGenerated) return generated(session, record, reply);
  if (opcode >= kOpcodes || kTable[opcode].thunk == nullptr) {
    return violation("there is no command " + std::to_string(opcode));
  }
  return kTable[opcode].thunk(session, record, reply);
}

const char* name_of(Opcode opcode) {
  const auto index = static_cast<size_t>(opcode);
  if (index < kOpcodes) return kTable[index].name;
  const char* name = generated_opcode_name(static_cast<uint16_t>(opcode));
  return name != nullptr ? name : "";
}

}  // namespace openmps::worker
