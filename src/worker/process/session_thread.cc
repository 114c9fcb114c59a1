// SPDX-License-Identifier: Apache-2.0
// See session_thread.h.
#include "worker/process/session_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "worker/device/driver_check.h"
#include "worker/device/log.h"
#include "worker/session/hand_over.h"

namespace openmps::worker {
namespace {

// Between two tries to drain or release a session while there is no memory for it.
constexpr useconds_t kTryAgainUs = 10'000;

// How long a session waits for others that are being made again, and how often it looks.
constexpr uint64_t kAdoptionsNs = 200 * kNsPerMs;
constexpr useconds_t kAdoptionLookUs = 200;

// Catches the exceptions of the C++ library: bad_alloc, and system_error of threads.
template <typename F>
Status guarded(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, error.what());
  }
}

// Calls f until there is memory for it. A session can't end before its work has ended: the next
// session gets the window.
template <typename F>
void repeat_until_memory(F&& f) {
  while (!guarded([&] { return f(), Status(); }).ok()) usleep(kTryAgainUs);
}

// Writes nothing if there is no memory for the line.
template <typename... Parts>
void say(const Parts&... parts) {
  static_cast<void>(guarded([&] { return log((std::string() + ... + parts)), Status(); }).ok());
}

}  // namespace

SessionThread::SessionThread(Environment& environment, SessionInfo info,
                             std::shared_ptr<Window> window, UniqueFd host_file, UniqueFd journal,
                             std::function<void()> on_end)
    : environment_(environment),
      window_(std::move(window)),
      host_file_(std::move(host_file)),
      journal_(std::move(journal)),
      parts_(environment.driver, environment.devices, environment.gate, environment.worker,
             std::move(info)),
      name_("Session " + std::to_string(parts_.core.info.id) + " (client " +
            std::to_string(parts_.core.info.client_pid) + " " + parts_.core.info.command + ")"),
      on_end_(std::move(on_end)) {}

SessionThread::~SessionThread() {
  if (thread_.joinable()) thread_.join();
}

Status SessionThread::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM,
                  std::string("there is no thread for the session: ") + error.what());
  }
  return Status();
}

void SessionThread::close(CUresult result) {
  const MutexLock lock(mutex_);
  end_result_ = result;
  if (channel_mapped_) end_session(parts_.core.view, result);
  parts_.stop.store(true, std::memory_order_release);
  if (ring_ != nullptr) ring_->wake();
}

void SessionThread::hand_over() {
  parts_.hands_over.store(true, std::memory_order_release);
  parts_.core.bell->ring();
}

void SessionThread::leave(uint32_t limit_ms) {
  parts_.leaves_by_ns.store(now_ns() + limit_ms * kNsPerMs, std::memory_order_release);
  parts_.core.bell->ring();
}

void SessionThread::suspend(wire::Residence residence, uint32_t limit_ms) {
  parts_.set_wish({residence, now_ns() + limit_ms * kNsPerMs});
  parts_.core.bell->ring();
}

void SessionThread::wake() {
  const MutexLock lock(mutex_);
  if (ring_ != nullptr) ring_->wake();
}

void SessionThread::run() {
  const SessionInfo& info = parts_.core.info;
  // For `top -H` and debuggers; ten digits at most, so it fits the kernel's 15 characters.
  pthread_setname_np(pthread_self(), ("sess-" + std::to_string(info.id)).c_str());
  const Status status = guarded([this] { return open(); });
  if (info.is_adopted()) environment_.worker.adoptions.fetch_sub(1, std::memory_order_relaxed);
  const wire::SessionReady ready{.session = info.id,
                                 .result = status.code(),
                                 .lost_streams = adopted_.lost_streams,
                                 .given_again = adopted_.given_again};
  if (!status.ok()) {
    say(name_, " can't open: ", status.message());
    shut();
    on_end_();
    environment_.server.send(ready, status.message());
    return;
  }
  say(name_, " opens");
  environment_.server.send(ready);
  execute();
  if (parts_.hands_over.load() && !parts_.stop.load()) {
    report_handed_over();
    return;  // the process ends, and with it what the session holds here
  }
  const bool leaves = parts_.leaves_by_ns.load() != 0 && !parts_.stop.load();
  if (leaves && !has_failed_) return finish_leaving();
  repeat_until_memory([this] { parts_.drain(); });
  shut();
  say(name_, " is closed");
  on_end_();  // first: the server may open a session of this number at once
  environment_.server.send(
      wire::SessionClosed{.session = info.id, .tainted = parts_.core.is_tainted() ? 1u : 0u});
}

// What the session holds here is released, and the next worker makes it again: from what the server
// keeps, and from the journal, which is the next worker's from here on.
void SessionThread::finish_leaving() {
  parts_.events.write_times();
  repeat_until_memory([this] { worker::hand_over(parts_); });
  parts_.memory.leave();
  parts_.core.journal.close();
  shut();
  say(name_, " goes to another worker");
  on_end_();
  environment_.server.send(wire::HandedOver{.session = parts_.core.info.id});
}

Status SessionThread::map_channel() {
  const SessionCore& core = parts_.core;
  OPENMPS_RETURN_IF_ERROR(window_->open(std::move(host_file_)));
  parts_.core.releases.set_kept(window_);
  const MutexLock lock(mutex_);
  parts_.core.view = wire::ChannelView(window_->host_part());
  const wire::ChannelHeader& header = parts_.core.view.header();
  if (header.magic != wire::kMagic || header.version != wire::kProtocolVersion ||
      header.window_base != core.window_base() || header.session != core.info.id) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the host file has another session's header");
  }
  channel_mapped_ = true;
  if (parts_.stop.load()) {  // close() came before the mapping
    end_session(parts_.core.view, end_result_);
  }
  return Status();
}

Status SessionThread::open_journal() {
  if (!journal_.valid()) return Status();
  OPENMPS_RETURN_IF_ERROR(parts_.core.journal.open(std::move(journal_)));
  watched_.set_may_move();
  return Status();
}

void SessionThread::report_handed_over() {
  Keeper* const keeper = environment_.worker.keeper.get();
  if (keeper != nullptr && keeper->has_waiting(parts_.core.info.id)) {
    environment_.server.send(
        wire::HandedOver{.session = parts_.core.info.id, .outcome = wire::Outcome::kComing});
  }
  HandingOver over;
  const Status status = guarded([&] { return over = worker::hand_over(parts_), Status(); });
  if (!status.ok()) {
    over.outcome = wire::Outcome::kLost;
    over.reason = status.message();
  } else if (!parts_.core.journal.stays().empty()) {
    over.outcome = wire::Outcome::kLost;
    over.reason = parts_.core.journal.stays();
  }
  wire::HandedOver message{.session = parts_.core.info.id,
                           .outcome = over.outcome,
                           .streams = over.streams,
                           .has_kernel = over.has_kernel ? 1u : 0u,
                           .asserts = parts_.modules.any_asserts() ? 1u : 0u,
                           .still_ms = static_cast<uint32_t>(watched_.stood_still_ms()),
                           .stream = over.stream};
  std::ranges::copy(over.grid, message.grid);
  std::ranges::copy(over.block, message.block);
  fill_field(message.kernel, over.kernel);
  environment_.server.send(message, over.reason);
}

Status SessionThread::open() {
  if (environment_.monitor.lost() != CUDA_SUCCESS) {
    return Status(CUDA_ERROR_MPS_SERVER_NOT_READY, "the shared context is lost");
  }
  parts_.physical.send = [this](uint32_t ticket, int descriptor) {
    const int fds[] = {descriptor};
    environment_.server.send(wire::PassDescriptor{.session = parts_.core.info.id, .ticket = ticket},
                             fds, ServerReports::kPassMs);
  };
  OPENMPS_RETURN_IF_ERROR(map_channel());
  OPENMPS_RETURN_IF_ERROR(parts_.core.use(parts_.core.devices.home()));
  // While a client captures a stream, all calls of this thread remain allowed. The client enforces
  // the capture mode that its program asked for.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OPENMPS_RETURN_IF_ERROR(check(environment_.driver.cuThreadExchangeStreamCaptureMode(&mode),
                                "cuThreadExchangeStreamCaptureMode"));
  if (Keeper* const keeper = environment_.worker.keeper.get(); keeper != nullptr) {
    keeper->begin(parts_.core.info.id);
  }
  parts_.on_stays = [this](std::string_view reason) {
    environment_.server.send(
        wire::HandedOver{.session = parts_.core.info.id, .outcome = wire::Outcome::kStays},
        std::string(reason));
  };
  parts_.on_suspended = [this](const Status& status, const SessionMemory::Moved& moved) {
    environment_.server.send(wire::SessionSuspended{.session = parts_.core.info.id,
                                                    .result = status.code(),
                                                    .moved = moved.moved,
                                                    .stays = moved.stays});
  };
  // The server holds back what the client sends while the session is about to leave.
  parts_.physical.inbox.while_waiting = [this] { parts_.stay("a descriptor is on its way"); };
  OPENMPS_RETURN_IF_ERROR(open_journal());
  OPENMPS_RETURN_IF_ERROR(parts_.memory.open_channel());
  if (parts_.core.info.is_adopted()) OPENMPS_RETURN_IF_ERROR(adopt(parts_, &adopted_));
  environment_.monitor.add(watched_);
  return Status();
}

// Code is loaded while nothing runs: who begins first would delay those that are made again.
void SessionThread::await_adoptions() const {
  const uint64_t limit_ns = now_ns() + kAdoptionsNs;
  while (environment_.worker.adoptions.load(std::memory_order_relaxed) != 0 &&
         now_ns() < limit_ns && !parts_.stop.load(std::memory_order_relaxed)) {
    usleep(kAdoptionLookUs);
  }
}

void SessionThread::execute() {
  await_adoptions();
  wire::RingConsumer ring(parts_.core.view);
  {
    const MutexLock lock(mutex_);
    ring_ = &ring;
  }
  parts_.core.bell->attach(&ring);
  const Status status = guarded([&] {
    Executor executor(parts_, ring, environment_.spins, watched_, environment_.worker.trace.get(),
                      environment_.worker.value_watch == nullptr);
    return executor.run();
  });
  parts_.core.bell->attach(nullptr);
  const MutexLock lock(mutex_);
  ring_ = nullptr;
  if (status.ok()) return;
  has_failed_ = true;
  end_session(parts_.core.view, status.code());
  say(name_, is_violation(status) ? " breaks the protocol: " : " is ended: ", status.message());
  environment_.server.send(
      wire::SessionFault{.session = parts_.core.info.id, .result = status.code()},
      status.message());
}

void SessionThread::shut() {
  repeat_until_memory([this] { parts_.release(); });
  environment_.monitor.remove(watched_);
  const MutexLock lock(mutex_);
  channel_mapped_ = false;
  window_.reset();
}

}  // namespace openmps::worker
