// SPDX-License-Identifier: Apache-2.0
// See main_loop.h.
#include "worker/process/main_loop.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text.h"
#include "wire/kept.h"
#include "wire/message.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// A closing session is woken this often: the word that its thread sleeps on is in memory that the
// client can write.
constexpr int kWakeAgainMs = 1000;

// How long what is given again to a suspended session may take, before that is suspended again.
constexpr uint32_t kSuspendAgainMs = 10'000;

// OpenMPS's own quality of service counts before MPS's client priority.
Rank rank_of(const wire::Grant& grant) {
  switch (wire::settled_quality(grant.quality, grant.limits.client_priority)) {
    case wire::Quality::kLatency: return Rank::kLatency;
    case wire::Quality::kBestEffort: return Rank::kBestEffort;
    default: return Rank::kNormal;
  }
}

}  // namespace

MainLoop::MainLoop(Environment& environment)
    : environment_(environment), ended_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  environment_.worker.partitions->connect(
      [this] { eventfd_write(ended_event_.get(), 1); },
      [&shares = environment_.worker.shares](uint32_t device, Rank from) {
        return shares[device].is_crowded(from);
      },
      &environment_.worker.shares);
}

MainLoop::~MainLoop() { end_all(); }

void MainLoop::end_all() {
  for (const auto& [id, session] : sessions_) close(id, CUDA_ERROR_MPS_RPC_FAILURE);
  while (!sessions_.empty()) {
    pollfd ended{ended_event_.get(), POLLIN, 0};
    poll(&ended, 1, kWakeAgainMs);
    reap();
    wake_closing();
  }
}

Status MainLoop::serve() {
  if (!ended_event_.valid()) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("eventfd: ") + strerror(errno));
  }
  for (;;) {
    pollfd wait[] = {{environment_.server.fd(), POLLIN, 0}, {ended_event_.get(), POLLIN, 0}};
    const int found = poll(wait, 2, longest_wait_ms());
    if (found < 0 && errno != EINTR) {
      return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("poll: ") + strerror(errno));
    }
    if (found == 0) wake_closing();
    ColdLanes* cold = environment_.worker.cold.get();
    if (cold != nullptr && cold->due_ns() != 0 && now_ns() >= cold->due_ns()) cold->make_ahead();
    if (wait[1].revents != 0) reap();
    partitions_due_ns_ = environment_.worker.partitions->service(now_ns());
    if (wait[0].revents == 0) continue;
    Result<Packet> packet =
        receive_packet(environment_.server.fd(), wire::kMaxMessageBytes, -1, Descriptors::kTaken);
    if (packet.status().code() == kNoBufferNow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kFirstRetryMs));
      continue;
    }
    if (!packet.ok()) return packet.status();
    if (packet->closed) return Status();
    OPENMPS_RETURN_IF_ERROR(handle(std::move(packet).value()));
  }
}

// -1: no limit.
int MainLoop::longest_wait_ms() const {
  const int longest = closing_.empty() ? -1 : kWakeAgainMs;
  const ColdLanes* cold = environment_.worker.cold.get();
  uint64_t due = cold == nullptr ? 0 : cold->due_ns();
  if (partitions_due_ns_ != 0) {
    due = due == 0 ? partitions_due_ns_ : std::min(due, partitions_due_ns_);
  }
  if (due == 0) return longest;
  const uint64_t now = now_ns();
  const int wait = due <= now ? 0 : static_cast<int>((due - now) / kNsPerMs) + 1;
  return longest < 0 ? wait : std::min(wait, longest);
}

bool MainLoop::idle() {
  reap();
  return sessions_.empty();
}

template <typename Message>
Status MainLoop::give(Packet& packet, Status (MainLoop::*handler)(const Message&, Packet&)) {
  Message message;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &message));
  return (this->*handler)(message, packet);
}

Status MainLoop::handle(Packet packet) {
  const Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (!header.ok()) return header.status();
  switch (header->kind) {
    case wire::MessageKind::kOpenSession: return give(packet, &MainLoop::open);
    case wire::MessageKind::kCloseSession: return give(packet, &MainLoop::close_session);
    case wire::MessageKind::kChangeSession: return give(packet, &MainLoop::change);
    case wire::MessageKind::kChangeGroup: return give(packet, &MainLoop::change_group);
    case wire::MessageKind::kReserve: return give(packet, &MainLoop::reserve);
    case wire::MessageKind::kPassDescriptor: return give(packet, &MainLoop::pass_descriptor);
    case wire::MessageKind::kGive: return give(packet, &MainLoop::take_given);
    case wire::MessageKind::kForget: return give(packet, &MainLoop::drop_given);
    case wire::MessageKind::kLeaveSession: return give(packet, &MainLoop::leave);
    case wire::MessageKind::kSuspendSession: return give(packet, &MainLoop::suspend);
    case wire::MessageKind::kMemoryShort: return give(packet, &MainLoop::note_memory_short);
    case wire::MessageKind::kForgotten: return give(packet, &MainLoop::note_forgotten);
    case wire::MessageKind::kProbe: return give(packet, &MainLoop::answer_probe);
    default:
      return Status(CUDA_ERROR_MPS_RPC_FAILURE,
                    "message kind " + std::to_string(static_cast<uint32_t>(header->kind)));
  }
}

Status MainLoop::answer_probe(const wire::Probe&, Packet&) {
  environment_.server.send(wire::Alive{});
  return Status();
}

Status MainLoop::close_session(const wire::CloseSession& message, Packet&) {
  if (message.session == 0) {
    log("New clients go to another worker: work that does not end is not waited for any more");
    environment_.gate.give_up();
  } else {
    close(message.session, static_cast<CUresult>(message.result));
    // Of a session that was to come from another worker, and does not, or that has left for one.
    if (!sessions_.contains(message.session)) environment_.worker.addresses.forget(message.session);
    if (Keeper* keeper = environment_.worker.keeper.get();
        keeper != nullptr && !sessions_.contains(message.session)) {
      keeper->drop_given(message.session);
    }
  }
  return Status();
}

SessionLimits MainLoop::limits_of(const wire::Grant& grant) const {
  SessionLimits limits;
  limits.rank = rank_of(grant);
  // SMs are kept from the first session on that has a rank.
  const bool keeps = limits.rank != Rank::kNormal && environment_.worker.performance.rank_sms;
  if (keeps) {
    for (const uint32_t i : environment_.devices.used()) {
      environment_.worker.partitions->keep_for_ranks(i);
    }
  }
  limits.reservation = grant.reservation;
  limits.client = grant.limits;
  for (uint32_t i = 0; i < environment_.devices.count(); ++i) {
    const cuda::SmSteps& steps = environment_.devices.at(i).sm_steps;
    limits.sms[i] =
        cuda::sms_of_limits(steps, grant.limits.sm_count[i], grant.limits.active_thread_percentage);
  }
  return limits;
}

void MainLoop::set_limits(SessionGroup& group, const wire::ClientLimits& limits) const {
  group.set_borrows(limits.borrows != 0);
  group.set_on_pressure(limits.on_pressure);
  for (uint32_t i = 0; i < environment_.devices.count(); ++i) {
    group.set_memory_limit(i, limits.memory_limit[i]);
    group.set_guaranteed(i, limits.guaranteed_memory[i]);
    group.account(i).set_weight(limits.weight);
    group.set_sms(i, cuda::sms_of_limits(environment_.devices.at(i).sm_steps, limits.sm_count[i],
                                         limits.active_thread_percentage));
  }
}

std::shared_ptr<SessionGroup> MainLoop::group_of(uint32_t number,
                                                 const wire::ClientLimits& limits) {
  if (number == 0) return nullptr;
  std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<SessionGroup> group = groups_[number].lock();
  if (group != nullptr) return group;
  groups_[number] = group = std::make_shared<SessionGroup>();
  set_limits(*group, limits);
  return group;
}

Status MainLoop::change_group(const wire::ChangeGroup& message, Packet&) {
  const auto found = groups_.find(message.group);
  const auto group = found == groups_.end() ? nullptr : found->second.lock();
  if (group == nullptr) return Status();
  set_limits(*group, message.limits);
  environment_.worker.partitions->change(*group);
  return Status();
}

// A session that has ended meanwhile keeps its limits.
Status MainLoop::change(const wire::ChangeSession& message, Packet&) {
  const auto found = sessions_.find(message.session);
  if (found != sessions_.end()) found->second->change(limits_of(message.grant));
  return Status();
}

Status MainLoop::reserve(const wire::Reserve& message, Packet&) {
  SmPartitions& partitions = *environment_.worker.partitions;
  if (message.sms == 0) {
    partitions.release(message.number);
    return Status();
  }
  Result<uint32_t> kept = Status(CUDA_ERROR_INVALID_DEVICE, "there is no such device");
  if (environment_.devices.uses(message.device)) {
    SmPlan::Reserve wish{.device = message.device,
                         .sms = message.sms,
                         .lends = message.lends != 0,
                         .most_sms = message.most_sms};
    for (uint32_t i = 0; i < wire::kMaxSmGroups; ++i) {
      wish.groups[i] = (message.groups[i / 64] >> i % 64 & 1) != 0;
    }
    kept = partitions.reserve(message.number, wish);
  }
  environment_.server.send(wire::Reserved{
      .number = message.number, .result = kept.status().code(), .sms = kept.ok() ? *kept : 0});
  return Status();
}

// A descriptor for a session that has just ended is closed.
Status MainLoop::pass_descriptor(const wire::PassDescriptor& message, Packet& packet) {
  const auto found = sessions_.find(message.session);
  if (found == sessions_.end()) return Status();
  // A packet without a descriptor: this process had none left, and the command that waits for the
  // descriptor fails.
  if (!packet.fds.empty() && message.ticket == wire::kRecordTicket) {
    if (Recorder* recorder = environment_.worker.recorder.get(); recorder != nullptr) {
      recorder->record(message.session, std::move(packet.fds[0]));
    }
  } else if (!packet.fds.empty()) {
    found->second->put_descriptor(message.ticket, std::move(packet.fds[0]));
  }
  environment_.server.send(wire::DescriptorTaken{.session = message.session});
  return Status();
}

// A packet without a descriptor: this process had none left, and the session can't be made again.
Status MainLoop::take_given(const wire::Give& message, Packet& packet) {
  Keeper* const keeper = environment_.worker.keeper.get();
  if (keeper == nullptr) return Status();
  UniqueFd file = packet.fds.empty() ? UniqueFd() : std::move(packet.fds[0]);
  if (message.what != wire::Kept::kImage) {
    keeper->on_give(message, std::move(file));
  } else if (file.valid()) {
    environment_.worker.images.give(message.number, message.bytes, std::move(file));
  }
  return Status();
}

Status MainLoop::drop_given(const wire::Forget& message, Packet&) {
  if (message.what == wire::Kept::kImage) environment_.worker.images.drop_given(message.number);
  return Status();
}

// One that has ended meanwhile says so by SessionClosed.
Status MainLoop::leave(const wire::LeaveSession& message, Packet&) {
  const auto found = sessions_.find(message.session);
  if (found != sessions_.end()) found->second->leave(message.limit_ms);
  return Status();
}

// Of one that has ended meanwhile SessionClosed says so.
Status MainLoop::suspend(const wire::SuspendSession& message, Packet&) {
  const auto found = sessions_.find(message.session);
  if (found != sessions_.end()) found->second->suspend(message.residence, message.limit_ms);
  return Status();
}

Status MainLoop::note_memory_short(const wire::MemoryShort& message, Packet&) {
  if (environment_.devices.uses(message.device)) {
    environment_.worker.pressure.ask_for_others(message.device, message.bytes);
  }
  return Status();
}

Status MainLoop::note_forgotten(const wire::Forgotten& message, Packet&) {
  if (Keeper* keeper = environment_.worker.keeper.get()) keeper->on_forgotten(message);
  return Status();
}

Status MainLoop::open(const wire::OpenSession& message, Packet& packet) {
  reap();  // a session of this number may just have ended
  if (message.window >= wire::kMaxWindows || sessions_.contains(message.session)) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "OpenSession of session " +
                                                  std::to_string(message.session) + ", window " +
                                                  std::to_string(message.window));
  }
  Status status;
  std::shared_ptr<Window> window;
  try {
    window = std::make_shared<Window>(message.window, environment_.worker.addresses,
                                      environment_.server);
    status = start(message, packet, window);
  } catch (const std::bad_alloc&) {
    status = Status(CUDA_ERROR_OUT_OF_MEMORY, "there is no memory for the session");
    if (window == nullptr) environment_.server.send(wire::WindowFree{.window = message.window});
  }
  if (status.ok()) return status;
  sessions_.erase(message.session);
  log("Session " + std::to_string(message.session) + " can't open: " + status.message());
  environment_.server.send(wire::SessionReady{.session = message.session, .result = status.code()},
                           status.message());
  return Status();
}

Status MainLoop::start(const wire::OpenSession& message, Packet& packet,
                       std::shared_ptr<Window> window) {
  if (packet.fds.size() != (wire::takes_over() ? 2 : 1)) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, "there is no descriptor left for its files");
  }
  // The server has sent Reserve before OpenSession.
  if (message.grant.reservation != 0 &&
      !environment_.worker.partitions->keeps(message.grant.reservation)) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "its SMs can't be kept for it");
  }
  SessionInfo info;
  info.id = message.session;
  info.window = message.window;
  info.client_pid = message.client_pid;
  info.adoption = message.adoption;
  info.replay = message.grant.replay;
  info.limits = limits_of(message.grant);
  info.group = group_of(message.grant.group, message.group_limits);
  info.command = printable(field_text(message.command));
  {
    // So that on_end() allocates nothing.
    const MutexLock lock(mutex_);
    ended_.reserve(sessions_.size() + 1);
  }
  const auto on_end = [this, id = info.id] {
    const MutexLock lock(mutex_);
    ended_.push_back(id);
    eventfd_write(ended_event_.get(), 1);
  };
  if (ColdLanes* cold = environment_.worker.cold.get(); cold != nullptr) {
    cold->note_session(sessions_.empty(), info.is_adopted(), now_ns());
  }
  UniqueFd journal = packet.fds.size() > 1 ? std::move(packet.fds[1]) : UniqueFd();
  if (info.is_adopted()) environment_.worker.adoptions.fetch_add(1, std::memory_order_relaxed);
  auto session = std::make_unique<SessionThread>(
      environment_, info, std::move(window), std::move(packet.fds[0]), std::move(journal), on_end);
  if (message.residence != wire::Residence::kDevice) {
    session->suspend(message.residence, kSuspendAgainMs);
  }
  return (sessions_[info.id] = std::move(session))->start();
}

// Does nothing for a session that has ended by itself.
void MainLoop::close(uint32_t session, CUresult result) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  closing_.insert(session);
  found->second->close(result);
}

void MainLoop::wake_closing() {
  for (const uint32_t id : closing_) sessions_.at(id)->wake();
}

void MainLoop::reap() {
  eventfd_t count = 0;
  eventfd_read(ended_event_.get(), &count);
  for (;;) {
    uint32_t id = 0;
    {
      const MutexLock lock(mutex_);
      if (ended_.empty()) return;
      id = ended_.back();
      ended_.pop_back();
    }
    closing_.erase(id);
    sessions_.erase(id);
  }
}

}  // namespace openmps::worker
