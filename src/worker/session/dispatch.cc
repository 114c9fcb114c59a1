// SPDX-License-Identifier: Apache-2.0
// Finds at compile time which part of a session handles each command. See dispatch.h.
#include "worker/session/dispatch.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <string>
#include <tuple>
#include <utility>

#include "wire/codec.h"
#include "wire/commands.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

using S = SessionParts;
using wire::Effect;
using wire::Object;
constexpr std::tuple kParts{&S::memory,           &S::physical,  &S::greens,    &S::streams,
                            &S::release_commands, &S::events,    &S::functions, &S::ipc_commands,
                            &S::modules,          &S::prints,    &S::links,     &S::fences,
                            &S::arrays,           &S::submitter, &S::graphs,    &S::limits,
                            &S::device_queries,   &S::losses};

// The objects of a kind. Contexts have no table: streams name them.
template <Object object>
const auto& table(const S& session) {
  if constexpr (object == Object::kStream) return session.streams.streams();
  if constexpr (object == Object::kEvent) return session.events.events();
  if constexpr (object == Object::kBlob) return session.modules.blobs();
  if constexpr (object == Object::kModule) return session.modules.modules();
  if constexpr (object == Object::kFunction) return session.modules.functions();
  if constexpr (object == Object::kLink) return session.links.links();
  if constexpr (object == Object::kPhysical) return session.physical.objects();
  if constexpr (object == Object::kExec) return session.graphs.execs();
  if constexpr (object == Object::kGraph) return session.graphs.kept();
  if constexpr (object == Object::kGreen) return session.greens.greens();
  if constexpr (object == Object::kDescriptor) return session.greens.descriptors();
  if constexpr (object == Object::kArray) return session.arrays.arrays();
  if constexpr (object == Object::kMipmapped) return session.arrays.mipmapped();
  if constexpr (object == Object::kImage) return session.arrays.images();
}

// Checks that an id which the command names exists, or is free, as the command's description says.
// Errors: violations of the protocol.
template <typename Name, typename C>
Status check_name(const S& session, const C& command, Name) {
  const wire::Id id = command.*Name::kField;
  if constexpr (Name::kObject == Object::kDevice) {
    return session.core.check_device(id);
  } else if constexpr (Name::kObject != Object::kContext) {
    const auto& objects = table<Name::kObject>(session);
    if (Name::kOptional && id == 0) return Status();
    // The image of a module that is made again comes from the server.
    if (Name::kObject == Object::kBlob && session.core.journal.is_adopting()) return Status();
    if constexpr (Name::kEffect == Effect::kNew) return objects.check_free(id);
    if (objects.find(id) != nullptr) return Status();
    if constexpr (Name::kEffect == Effect::kMake) return objects.check_free(id);
    return objects.check(id);
  } else {
    return Status();
  }
}
template <typename C>
Status check_names(const S& session, const C& command) {
  Status status;
  const auto look = [&](auto name) {
    status = check_name(session, command, name);
    return status.ok();
  };
  wire::NamesOf<C>::with([&](auto... name) { static_cast<void>((look(name) && ...)); });
  return status;
}

// What a handler gets for an id: a reference to the object that it uses, or a pointer if the id is
// optional.
template <typename Name, typename C>
auto named(const S& session, const C& command, Name) {
  constexpr bool kHanded = Name::kEffect == Effect::kUse || Name::kEffect == Effect::kChange ||
                           Name::kEffect == Effect::kIn;
  if constexpr (!kHanded || Name::kObject == Object::kDevice || Name::kObject == Object::kContext) {
    return std::tuple<>();
  } else {
    auto* object = table<Name::kObject>(session).find(command.*Name::kField);
    if constexpr (Name::kOptional) {
      return std::tuple(object);
    } else {
      return std::tuple<decltype(*object)>(*object);
    }
  }
}

// The arguments of a handler: the struct, the objects, the tail and the reply if the command has
// them.
template <typename C>
auto arguments(const S& session, const C& command, [[maybe_unused]] const wire::TailOf<C>& tail,
               [[maybe_unused]] ReplyWriter& writer) {
  const auto objects = wire::NamesOf<C>::with(
      [&](auto... name) { return std::tuple_cat(named(session, command, name)...); });
  const auto more = [&] {
    if constexpr (wire::WithTail<C>) {
      return std::tuple<const wire::TailOf<C>&>(tail);
    } else {
      return std::tuple<>();
    }
  }();
  const auto reply = [&] {
    if constexpr (wire::WithReply<C>) {
      return std::tuple(ReplyTo<C>(writer));
    } else {
      return std::tuple<>();
    }
  }();
  return std::tuple_cat(std::tuple<const C&>(command), objects, more, reply);
}

template <typename Part, typename Arguments>
constexpr bool kTakes = false;
template <typename Part, typename... A>
constexpr bool kTakes<Part, std::tuple<A...>> = requires(Part& part, A... a) {
  { part.handle(a...) } -> std::same_as<Status>;
};

// The index in kParts of the part that handles C.
template <typename C>
constexpr size_t part_of() {
  size_t found = 0;
  size_t count = 0;
  const auto look = [&]<size_t... i>(std::index_sequence<i...>) {
    const auto one = [&]<typename Part>(size_t number, Part S::*) {
      using Arguments =
          decltype(arguments(std::declval<const S&>(), std::declval<const C&>(),
                             std::declval<const wire::TailOf<C>&>(), std::declval<ReplyWriter&>()));
      if constexpr (kTakes<Part, Arguments>) {
        found = number;
        ++count;
      }
    };
    (one(i, std::get<i>(kParts)), ...);
  };
  look(std::make_index_sequence<std::tuple_size_v<decltype(kParts)>>());
  return count == 1 ? found : ~size_t{0};
}

template <typename C>
constexpr wire::Held held_with() {
  if constexpr (requires { C::kHeld; }) return C::kHeld;
  return wire::Held::kFirst;
}

// Drops the chains of launches (worker/work/batch.h) once their work has ended: they name functions
// that the command destroys or changes.
void retire_chains(SessionParts& session) {
  std::vector<std::shared_ptr<Chains>> chains = session.streams.take_chains();
  if (chains.empty()) return;
  session.core.releases.add_behind_work({wire::ReturnKind::kCode},
                                        [chains = std::move(chains)]() mutable { chains.clear(); });
}
template <typename Name>
void retire_chains_of(SessionParts& session, Name) {
  constexpr bool kEnds = Name::kEffect == Effect::kEnd;
  if constexpr ((kEnds && Name::kObject == Object::kModule) ||
                (kEnds && Name::kObject == Object::kContext) ||
                (Name::kEffect == Effect::kChange && Name::kObject == Object::kFunction)) {
    retire_chains(session);
  }
}

// The item of held work uses an object that a command of kHeld `kOwn` names.
template <typename Name, typename C>
bool concerns(const SessionParts& session, const C& command, const Backlog::Item& item, Name) {
  const wire::Id id = command.*Name::kField;
  const Work& work = item.work.work();
  if constexpr (Name::kObject == Object::kStream) {
    return item.stream.id == id;
  } else if constexpr (Name::kObject == Object::kContext) {
    return session.streams.is_of(item.stream, id);
  } else if constexpr (Name::kObject == Object::kGreen) {
    return item.stream.green != nullptr && item.stream.green == session.greens.greens().find(id);
  } else if constexpr (Name::kObject == Object::kEvent) {
    const Event* event = session.events.events().find(id);
    return event != nullptr && event->driver_event != nullptr &&
           item.names(event->driver_event.get());
  } else if constexpr (Name::kObject == Object::kExec) {
    const auto* graph = std::get_if<GraphWork>(&work.what);
    return graph != nullptr && graph->exec == session.graphs.execs().find(id);
  } else if constexpr (Name::kObject == Object::kFunction) {
    const auto* kernel = std::get_if<KernelWork>(&work.what);
    return kernel != nullptr && kernel->function == session.modules.functions().find(id);
  } else {
    return false;
  }
}
template <typename C>
void flush_what_concerns(SessionParts& session, const C& command) {
  session.submitter.flush_for([&](const Backlog::Item& item) {
    return wire::NamesOf<C>::with(
        [&](auto... name) { return (concerns(session, command, item, name) || ...); });
  });
}

// ---- The journal (worker/core/journal.h)
// ----------------------------------------------------------

template <typename C>
constexpr bool kIsKept = requires {
  C::kKeeping;
};
template <typename C>
constexpr bool kOutlives = requires {
  C::kOutlives;
};
template <typename Name>
constexpr bool kIsObject = Name::kObject != Object::kDevice;

// Whether the command has a place in the journal: it is kept, or ends what is.
template <typename C>
constexpr bool concerns_journal() {
  return kIsKept<C> || std::same_as<C, wire::MemoryUnmap> || std::same_as<C, wire::AddressFree> ||
         std::same_as<C, wire::HostUnregister> || std::same_as<C, wire::HostFree> ||
         std::same_as<C, wire::MemoryWithdraw> || wire::NamesOf<C>::with([](auto... name) {
           return ((name.kEffect == Effect::kEnd) || ... || false);
         });
}

// The objects whose end drops the entry, and the one of them that the command makes; or, with
// `outlives`, what it uses and outlives.
template <typename C, typename Name>
void add_object(const C& command, Name, std::vector<Journal::ObjectKey>* lives_with,
                Journal::ObjectKey* makes, Journal::ObjectKey* outlives) {
  constexpr Effect effect = Name::kEffect;
  constexpr bool is_used = effect == Effect::kUse;
  if constexpr (kIsObject<Name> && (is_used || effect == Effect::kNew || effect == Effect::kMake ||
                                    effect == Effect::kChange)) {
    const wire::Id id = command.*Name::kField;
    if (id == 0) return;
    const Journal::ObjectKey key = Journal::object(Name::kObject, id);
    if (kOutlives<C> && is_used) {
      *outlives = key;
    } else {
      lives_with->push_back(key);
      if (effect == Effect::kNew) *makes = key;
    }
  }
}

template <auto field, typename C>
void append_key(const C& command, const wire::TailOf<C>& tail, std::string* key) {
  if constexpr (requires { command.*field; }) {
    const auto& value = command.*field;
    key->append(reinterpret_cast<const char*>(&value), sizeof(value));
  } else {
    *key += tail.*field;
  }
}

template <typename C>
Journal::Range range_of([[maybe_unused]] const C& command,
                        [[maybe_unused]] const ReplyWriter& writer) {
  if constexpr (std::same_as<C, wire::AddressReserve> || std::same_as<C, wire::HostReserve>) {
    typename C::Reply reply;
    if (writer.size() < sizeof(reply)) return {};
    memcpy(&reply, writer.data(), sizeof(reply));
    return {.begin = reply.address, .end = reply.address + command.bytes};
  } else {
    return {.begin = command.address,
            .end = command.address + command.bytes,
            .address_at = offsetof(C, address),
            .bytes_at = offsetof(C, bytes)};
  }
}

template <typename C>
void note_in_journal(SessionParts& session, const wire::Record& record, const C& command,
                     const wire::TailOf<C>& tail, const Status& status, const ReplyWriter& writer) {
  Journal& journal = session.core.journal;
  // A command that fails because the context is lost, with whatever error, is executed again in the
  // next worker: what it is about is there as before.
  if (!journal.is_open() || is_sticky(status.code())) return;
  if (!status.ok() && session.leaves_commands()) return;
  journal.note_position(record.end);
  const Journal::Bytes bytes(record.payload, record.payload_bytes);
  const auto end = [&](auto name) {
    using Name = decltype(name);
    if constexpr (Name::kEffect == Effect::kEnd) {
      // A blob ends also where its load fails.
      if (status.ok() || Name::kObject == Object::kBlob) {
        journal.end(Journal::object(Name::kObject, command.*Name::kField), C::kOpcode, bytes);
      }
    }
  };
  wire::NamesOf<C>::with([&](auto... name) { (end(name), ...); });
  if constexpr (std::same_as<C, wire::MemoryUnmap> || std::same_as<C, wire::AddressFree> ||
                std::same_as<C, wire::HostUnregister>) {
    if (status.ok()) journal.end_range(command.address, command.bytes, C::kOpcode);
  }
  if constexpr (std::same_as<C, wire::HostFree>) {
    if (status.ok()) journal.end_host_pages(command.address);
  }
  if constexpr (std::same_as<C, wire::MemoryWithdraw>) {
    if (status.ok()) journal.end(Journal::share(command.key), C::kOpcode, bytes);
  }
  if constexpr (kIsKept<C>) {
    Journal::Command kept;
    kept.opcode = C::kOpcode;
    kept.keeping = C::kKeeping;
    kept.record = bytes;
    kept.reply = {writer.data(), writer.size()};
    std::vector<Journal::ObjectKey> objects;
    wire::NamesOf<C>::with([&](auto... name) {
      (add_object(command, name, &objects, &kept.makes, &kept.outlives), ...);
    });
    if constexpr (std::same_as<C, wire::MemoryPublish>) {
      wire::MemoryPublish::Reply reply;
      if (writer.size() >= sizeof(reply)) {
        memcpy(&reply, writer.data(), sizeof(reply));
        objects.push_back(Journal::share(reply.key));
      }
    }
    kept.lives_with = objects;
    constexpr bool kIsGraph = C::kKeeping == wire::Keeping::kGraph;
    constexpr bool kUses =
        std::same_as<C, wire::GraphInstantiate> || std::same_as<C, wire::GraphUpdate>;
    if constexpr (kIsGraph) {
      if (std::same_as<C, wire::GraphBegin>) journal.begin_graph(objects.front());
      if (!status.ok() && kUses) journal.fail_graph(objects.front());
      if (status.ok() && kUses) {
        journal.use_graph(objects.front(), std::same_as<C, wire::GraphUpdate>);
      }
    }
    if (!status.ok() || std::same_as<C, wire::GraphUpdate>) return;
    wire::KeysOf<C>::with(
        [&](auto... key) { (append_key<decltype(key)::kField>(command, tail, &kept.key), ...); });
    if constexpr (C::kKeeping == wire::Keeping::kRange) kept.range = range_of(command, writer);
    if constexpr (C::kKeeping == wire::Keeping::kStays) kept.stays = C::kStays;
    journal.add(kept);
  }
}

template <typename C>
Status run(SessionParts& session, const wire::Record& record, ReplyWriter& writer) {
  constexpr size_t kPart = part_of<C>();
  constexpr bool kHasPart = kPart != ~size_t{0};
  static_assert(kHasPart, "one part of the session has Status handle() for this command");
  const C* command = nullptr;
  wire::TailOf<C> tail;
  OPENMPS_RETURN_IF_ERROR(wire::decode(record, &command, &tail));
  if constexpr (!std::same_as<C, wire::Launch>) session.submitter.end_batch();
  if constexpr (held_with<C>() == wire::Held::kLeft) session.submitter.prepare_to_wait();
  if constexpr (held_with<C>() == wire::Held::kFirst) session.submitter.flush();
  OPENMPS_RETURN_IF_ERROR(check_names(session, *command));
  if constexpr (held_with<C>() == wire::Held::kOwn) {
    if (!session.backlog.empty()) flush_what_concerns(session, *command);
  }
  wire::NamesOf<C>::with([&](auto... name) { (retire_chains_of(session, name), ...); });
  if constexpr (wire::WithRanges<C>) {
    OPENMPS_RETURN_IF_ERROR(session.memory.check_operands(*command));
  }
  if constexpr (kHasPart) {
    auto& part = session.*std::get<kPart>(kParts);
    const auto handle = [&] {
      return std::apply([&part](auto&&... a) { return part.handle(a...); },
                        arguments(session, *command, tail, writer));
    };
    if constexpr (concerns_journal<C>()) {
      session.core.journal.begin();
      Status status = handle();
      if (!writer.is_pending()) {
        note_in_journal(session, record, *command, tail, status, writer);
      }
      return status;
    } else {
      return handle();
    }
  }
}

using Run = Status (*)(SessionParts&, const wire::Record&, ReplyWriter&);

// By opcode; null: there is no such command.
template <typename... Cs>
constexpr auto make_table(wire::CommandList<Cs...>) {
  std::array<Run, std::max({static_cast<size_t>(Cs::kOpcode)...}) + 1> table{};
  ((table[static_cast<size_t>(Cs::kOpcode)] = run<Cs>), ...);
  return table;
}
constexpr auto kTable = make_table(wire::Commands());

template <typename C>
void note_late_command(SessionParts& session, const wire::Record& record, const Status& status,
                       const ReplyWriter& writer) {
  if constexpr (wire::AnsweredLater<C>) {
    const C* command = nullptr;
    wire::TailOf<C> tail;
    if (record.opcode != C::kOpcode || !wire::decode(record, &command, &tail).ok()) return;
    note_in_journal(session, record, *command, tail, status, writer);
  }
}
template <typename... Cs>
void note_late_of(wire::CommandList<Cs...>, SessionParts& session, const wire::Record& record,
                  const Status& status, const ReplyWriter& writer) {
  (note_late_command<Cs>(session, record, status, writer), ...);
}

}  // namespace

void note_late(SessionParts& session, const wire::Record& record, const Status& status,
               const ReplyWriter& reply) {
  note_late_of(wire::Commands(), session, record, status, reply);
}

Status dispatch(SessionParts& session, const wire::Record& record, ReplyWriter& reply) {
  // All that the command submits is submitted when dispatch() returns.
  const SubmitScope scope(session.core.gate_client);
  const auto opcode = static_cast<size_t>(record.opcode);
  if (opcode >= kTable.size() || kTable[opcode] == nullptr) {
    return violation("there is no command " + std::to_string(opcode));
  }
  return kTable[opcode](session, record, reply);
}

}  // namespace openmps::worker
