// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the worker's command handlers: the input is what two hostile clients send through
// well-formed rings, one command after the other, to sessions on a driver that checks every call
// (strict_driver.h). A command is 2 bytes of opcode, 2 bytes of length, and that many bytes of
// struct and variable part. Whatever the commands are, the driver is only called with objects and
// memory of the session, a violation ends only the session that sent it, and sessions that have
// ended leave nothing behind.
//
// Opcode 0, which a ring's consumer refuses, is for the target itself: see `Instruction`. A key in
// a command that is zero except for its first byte, n, stands for the n-th key that was published.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "empty_journal.h"
#include "strict_driver.h"
#include "wire/codec.h"
#include "wire/command_info.h"
#include "worker/device/driver_check.h"
#include "worker/session/adoption.h"
#include "worker/session/dispatch.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {
namespace {

constexpr uint32_t kFirstWindow = 3;
constexpr uint32_t kSessions = 2;
constexpr uint64_t kMemoryLimit = 64 * wire::kMiB;
// Of the journal: as much as an input can describe.
constexpr uint64_t kDamagedBytes = wire::kJournalStart + wire::kMiB;

// The first four bytes behind opcode 0; the next four are its argument.
enum class Instruction : uint32_t {
  kSwitch = 0,   // the following commands are for the other session
  kFail = 1,     // the argument says how many calls to the driver succeed before one fails
  kStage = 2,    // the remaining bytes are written to this offset of the staging arena
  kRestart = 3,  // the client ends, and another one gets its window
  // The worker ends, without a word of the session if the argument is odd, and the session is made
  // again in the next one. The remaining bytes are pairs of words: an offset in the journal, or, in
  // its upper half, in the channel, and what is written there before.
  kMove = 4,
};

// Whether a session that moved was made again.
bool& has_moved() {
  static bool moved = false;
  return moved;
}

std::set<uint16_t>& succeeded() {
  static std::set<uint16_t> opcodes;
  return opcodes;
}

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) abort();
  return std::move(result).value();
}

// The host part of a session's window: 64 GiB of addresses, which all inputs use.
unsigned char* host_part(uint32_t session) {
  static const auto mappings = [] {
    std::array<Mapping, kSessions> made;
    for (uint32_t i = 0; i < kSessions; ++i) {
      const uint64_t start = wire::window_base(kFirstWindow + i) + wire::kDeviceBytes;
      const UniqueFd file = must(create_shared_file("fuzz", wire::kHostBytes));
      Mapping reserved = must(reserve_addresses(start, wire::kHostBytes));
      made[i] = must(map_shared_at(start, file.get(), 0, wire::kHostBytes));
      reserved.leak();  // replaced by the mapping
    }
    return made;
  }();
  return static_cast<unsigned char*>(mappings[session].address());
}

class Player {
 public:
  Player() : devices_(must(Devices::open(driver_.table()))) {
    worker_parts_.images.set_keeping(
        {[this](uint64_t hash, uint64_t bytes, int file) {
           images_[hash] = {bytes, UniqueFd(fcntl(file, F_DUPFD_CLOEXEC, 0))};
           return true;
         },
         [this](uint64_t hash) { images_.erase(hash); }});
  }
  ~Player() {
    for (uint32_t i = 0; i < kSessions; ++i) end(i);
    driver_.must_be_empty();
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void play(std::span<const uint8_t> input);

 private:
  void begin(uint32_t index, wire::Adoption adoption = wire::Adoption::kNone);
  void end(uint32_t index);
  void leave_worker(uint32_t index);
  void move(uint32_t index, bool is_found, std::span<const unsigned char> damage);
  void write_damage(uint32_t index, std::span<const unsigned char> damage);
  void instruct(std::span<const unsigned char> body);
  void prepare(wire::Opcode opcode, std::span<unsigned char> payload);
  Status execute(wire::Opcode opcode, std::span<unsigned char> payload);

  // Images that the server keeps, by their hashes.
  struct Image {
    uint64_t bytes = 0;
    UniqueFd file;
  };
  static Image copy_of(const Image& image) {
    return {image.bytes, UniqueFd(fcntl(image.file.get(), F_DUPFD_CLOEXEC, 0))};
  }
  std::map<uint64_t, Image> images_;
  StrictDriver driver_;
  const Devices devices_;
  ContextGate gate_{driver_.table()};
  const MonotonicClock clock_;
  WorkerParts worker_parts_{clock_};
  std::array<std::unique_ptr<SessionParts>, kSessions> sessions_;
  std::array<UniqueFd, kSessions> journals_;
  std::array<bool, kSessions> ended_{};
  std::array<uint32_t, kSessions> ids_{};
  uint32_t last_id_ = 0;
  uint32_t turn_ = 0;
  ReplyWriter reply_;
  std::vector<wire::ShareKey> keys_;
};

void Player::begin(uint32_t index, wire::Adoption adoption) {
  SessionInfo info;
  info.adoption = adoption;
  info.replay = wire::Replay::kAlways;
  info.id = ids_[index] = ++last_id_;
  info.window = kFirstWindow + index;
  info.limits.client.memory_limit[0] = kMemoryLimit;
  driver_.act_for(info.id);
  sessions_[index] =
      std::make_unique<SessionParts>(driver_.table(), devices_, gate_, worker_parts_, info);
  SessionParts& session = *sessions_[index];
  session.core.view = wire::ChannelView(host_part(index));
  // A descriptor that is sent to the client is given back to the session, where an import can use
  // it.
  session.physical.send = [&session](uint32_t ticket, int descriptor) {
    session.physical.inbox.put(ticket, UniqueFd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)));
  };
  if (adoption == wire::Adoption::kNone) journals_[index] = make_empty_journal();
  // A damaged one may be refused.
  const Status opened =
      session.core.journal.open(UniqueFd(fcntl(journals_[index].get(), F_DUPFD_CLOEXEC, 0)));
  if (!opened.ok() && adoption == wire::Adoption::kNone) abort();
  ended_[index] = !opened.ok() || !session.memory.open_channel().ok();
}

void Player::leave_worker(uint32_t index) {
  driver_.act_for(ids_[index]);
  sessions_[index]->drain();
  sessions_[index]->release();
  sessions_[index].reset();
}

void Player::write_damage(uint32_t index, std::span<const unsigned char> damage) {
  const Mapping journal =
      must(map_shared(journals_[index].get(), 0, kDamagedBytes, MapAccess::kReadWrite));
  for (; damage.size() >= 8; damage = damage.subspan(8)) {
    uint32_t words[2];
    memcpy(words, damage.data(), sizeof(words));
    const bool is_channel = words[0] >> 31 != 0;
    auto* const target =
        is_channel ? host_part(index) : static_cast<unsigned char*>(journal.address());
    const uint64_t end = is_channel ? wire::kStagingOffset : kDamagedBytes;
    const uint64_t offset = (words[0] & ~(1u << 31)) % (end - sizeof(words[1]));
    memcpy(target + offset, &words[1], sizeof(words[1]));
  }
}

// As SessionThread::open() and Executor do.
void Player::move(uint32_t index, bool is_found, std::span<const unsigned char> damage) {
  if (sessions_[index] == nullptr) return;
  // The server closes nothing of a worker that ends, and gives the next one what it keeps.
  std::map<uint64_t, Image> images;
  for (const auto& [hash, image] : images_) images[hash] = copy_of(image);
  leave_worker(index);
  for (auto& [hash, image] : images) {
    images_[hash] = copy_of(image);
    worker_parts_.images.give(hash, image.bytes, std::move(image.file));
  }
  write_damage(index, damage);
  begin(index, is_found ? wire::Adoption::kFound : wire::Adoption::kHandedOver);
  Status status(CUDA_ERROR_MPS_RPC_FAILURE, "");
  if (!ended_[index]) {
    Adopted adopted;
    try {
      status = adopt(*sessions_[index], &adopted);
    } catch (const std::bad_alloc&) {
      status = Status(CUDA_ERROR_OUT_OF_MEMORY, "no memory");
    }
    if (!status.ok() && status.message().empty()) abort();  // it is lost without a reason
  }
  if (!status.ok()) {
    end(index);
    ended_[index] = true;
    return;
  }
  has_moved() = true;
  for (SessionParts::PendingCommand& again : std::exchange(sessions_[index]->pending, {})) {
    if (!is_violation(execute(again.opcode, again.payload))) continue;
    end(index);
    ended_[index] = true;
    return;
  }
}

void Player::end(uint32_t index) {
  if (sessions_[index] == nullptr) return;
  leave_worker(index);
  madvise(host_part(index), wire::kChannelBytes, MADV_REMOVE);  // inputs must not affect each other
}

void Player::instruct(std::span<const unsigned char> body) {
  uint32_t words[2];
  if (body.size() < sizeof(words)) return;
  memcpy(words, body.data(), sizeof(words));
  body = body.subspan(sizeof(words));
  switch (static_cast<Instruction>(words[0])) {
    case Instruction::kSwitch: turn_ = 1 - turn_; break;
    case Instruction::kRestart:
      end(turn_);
      ended_[turn_] = false;
      break;
    case Instruction::kMove: move(turn_, (words[1] & 1) != 0, body); break;
    case Instruction::kFail: driver_.fail_after(words[1]); break;
    case Instruction::kStage: {
      const size_t offset = std::min<size_t>(words[1], wire::kStagingBytes - body.size());
      if (sessions_[turn_] == nullptr) break;
      std::copy(body.begin(), body.end(), host_part(turn_) + wire::kStagingOffset + offset);
      break;
    }
  }
}

// Supplies what a session gets by other ways than the ring (descriptors), and replaces values that
// an input can't know (keys).
void Player::prepare(wire::Opcode opcode, std::span<unsigned char> payload) {
  if (opcode == wire::Opcode::kPhysicalImport && payload.size() >= sizeof(wire::PhysicalImport)) {
    wire::PhysicalImport command;
    memcpy(&command, payload.data(), sizeof(command));
    sessions_[turn_]->physical.inbox.put(command.ticket,
                                         UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  }
  if (opcode == wire::Opcode::kHostMap && payload.size() >= sizeof(wire::HostMap)) {
    wire::HostMap command;
    memcpy(&command, payload.data(), sizeof(command));
    Result<UniqueFd> file = create_shared_file("fuzz", wire::kMiB);
    if (file.ok()) sessions_[turn_]->physical.inbox.put(command.ticket, std::move(*file));
  }
  size_t at = 0;
  if (opcode == wire::Opcode::kMemoryOpen) {
    at = offsetof(wire::MemoryOpen, key);
  } else if (opcode == wire::Opcode::kEventOpen) {
    at = offsetof(wire::EventOpen, key);
  } else if (opcode != wire::Opcode::kMemoryWithdraw) {
    return;
  }
  if (payload.size() < at + sizeof(wire::ShareKey)) return;
  const auto key = payload.subspan(at, sizeof(wire::ShareKey));
  if (std::any_of(key.begin() + 1, key.end(), [](unsigned char byte) { return byte != 0; })) return;
  if (key[0] < keys_.size()) memcpy(key.data(), &keys_[key[0]], key.size());
}

Status Player::execute(wire::Opcode opcode, std::span<unsigned char> payload) {
  wire::Record record;
  record.opcode = opcode;
  record.payload = payload.data();
  record.payload_bytes = static_cast<uint32_t>(payload.size());
  reply_.clear();
  try {
    Status status = dispatch(*sessions_[turn_], record, reply_);
    const std::unique_ptr<Pending> pending = reply_.take_pending();
    if (pending == nullptr) return status;
    while (!pending->ready()) std::this_thread::yield();
    status = pending->finish(reply_);
    note_late(*sessions_[turn_], record, status, reply_);
    return status;
  } catch (const std::bad_alloc&) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "");
  }
}

// Executes commands until the input ends. As in Executor::run, a violation ends its session.
void Player::play(std::span<const uint8_t> input) {
  std::vector<unsigned char> payload;
  while (input.size() >= 4) {
    uint16_t header[2];  // opcode, bytes
    memcpy(header, input.data(), sizeof(header));
    input = input.subspan(sizeof(header));
    const size_t taken = std::min<size_t>({header[1], input.size(), wire::kMaxRecordBytes - 64});
    // Padded with zeros and aligned like the records of a ring.
    payload.assign(wire::record_bytes(taken) - sizeof(wire::RecordHeader), 0);
    std::copy_n(input.data(), taken, payload.data());
    input = input.subspan(taken);
    if (sessions_[turn_] == nullptr && !ended_[turn_]) begin(turn_);
    if (header[0] == 0) {
      instruct(std::span(payload).first(taken));
      continue;
    }
    if (ended_[turn_]) continue;
    driver_.act_for(ids_[turn_]);
    const auto opcode = static_cast<wire::Opcode>(header[0]);
    prepare(opcode, payload);
    const Status status = execute(opcode, payload);
    if (status.ok()) {
      succeeded().insert(header[0]);
      if (reply_.size() < wire::info_of(opcode)->reply_bytes) abort();  // the reply is missing
      const bool publishes =
          opcode == wire::Opcode::kMemoryPublish || opcode == wire::Opcode::kEventPublish;
      if (publishes) memcpy(&keys_.emplace_back(), reply_.data(), sizeof(wire::ShareKey));
    }
    if (!is_violation(status)) continue;
    if (status.message().empty()) abort();  // the refusal has no reason
    end(turn_);
    ended_[turn_] = true;
  }
}

}  // namespace
}  // namespace openmps::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  openmps::worker::Player().play({data, size});
  return 0;
}

// Whether every command has succeeded at least once.
extern "C" bool corpus_is_complete() {
#if defined(__SANITIZE_THREAD__)
  return true;  // the seeds' addresses are of the usual windows, which lie elsewhere here
#else
  using namespace openmps;
  bool complete = worker::has_moved();
  if (!complete) printf("no seed of the corpus has a session that is made again\n");
  for (const wire::CommandInfo& info : wire::commands()) {
    const auto opcode = static_cast<uint16_t>(info.opcode);
    if (worker::succeeded().contains(opcode)) continue;
    if (info.opcode == wire::Opcode::kModuleCopy) continue;  // in journals only
    printf("no seed of the corpus has a successful %s (%u)\n", info.name, opcode);
    complete = false;
  }
  return complete;
#endif
}
