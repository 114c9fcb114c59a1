// SPDX-License-Identifier: Apache-2.0
// The workers of one server, by fault domains: their start, end and replacement
// (docs/decisions/0010, 0045). Used by Server, which has the sessions, on the loop's thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/packet_peer.h"
#include "server/devices.h"
#include "server/domain.h"
#include "server/session_table.h"
#include "server/worker_state.h"

namespace openmps::server {

// How many workers are started in a row of which none becomes ready in time and none states why it
// can't work. Then the server gives up with the reason.
inline constexpr int kWorkerStartAttempts = 3;

// A worker that is neither ready nor gone after this hangs, or is stopped: the next worker replaces
// it and has twice the time. Without the persistence daemon a machine of eight GPUs takes tens of
// seconds to initialise; a client waits for 120 s.
inline constexpr uint64_t kWorkerReadyMs = 60'000;

// How many windows of clients that have ended, of up to 18 MiB of pinned memory each, a worker may
// hold before new clients get another worker: while a kernel does not end it can't release them.
inline constexpr uint32_t kMaxKeptWindows = 32;
// How long it may hold more: many clients that end together leave more for some milliseconds, and
// 300 on two busy cores for more than a second.
inline constexpr uint64_t kKeptWindowsMs = 5000;

// Workers of a domain beside the current one that serve their remaining clients. Each holds a
// context per GPU and a kernel that does not end, so the oldest is ended, with its clients, before
// there are more.
inline constexpr size_t kMaxRetiringWorkers = 3;

// Whether a worker is kept ready for the sessions of one that is lost: kAuto: while the server has
// several clients; kOn: while it has one.
enum class Spare { kAuto, kOn, kOff };

struct WorkerOptions {
  std::string program;
  std::string driver = "auto";  // OPENMPS_DRIVER
  uint64_t ready_ms = kWorkerReadyMs;
  uint64_t ping_ms = kPingMs;
  uint64_t silent_ms = kSilentMs;
  Spare spare = Spare::kAuto;  // OPENMPS_SPARE
};

// At most one worker of a domain is current: it starts, or takes new clients.
class Workers {
 public:
  // Owns the sessions (Server).
  class Owner {
   public:
    // Whether a client of the domain waits for a worker, or may still come.
    [[nodiscard]] virtual bool wants_worker(const Domain& domain) const = 0;
    // The current worker of its domain serves from now on.
    virtual void on_worker_ready(const Worker& worker) = 0;
    // A message about the worker's sessions. On an error, which means that the worker breaks the
    // protocol, it is replaced.
    virtual Status on_worker_message(Worker& worker, wire::MessageKind kind, Packet& packet) = 0;
    // A spare worker is ready, and may be used in this call. And: it has ended.
    virtual void on_spare_ready(const Worker& worker) = 0;
    virtual void on_no_spare(const Domain& domain) = 0;
    // The worker's sessions are lost. `how` says how it has ended; empty: the server ends it.
    virtual void on_sessions_lost(const Worker& worker, const std::string& how) = 0;
    // The worker that serves does not answer: clients whose session it has not opened yet get a
    // session in another worker.
    virtual void on_worker_silent(const Worker& worker) = 0;
    // A worker has ended; if it was the current one, the next one starts.
    virtual void on_worker_gone() = 0;
    // No worker can be started for the domain.
    virtual void on_no_worker(Domain& domain, const std::string& reason) = 0;

   protected:
    ~Owner() = default;
  };

  // Borrows everything.
  Workers(EventLoop& loop, const Log& log, Disposal& disposal, SessionTable& sessions,
          const WorkerOptions& options, Owner& owner)
      : loop_(loop),
        log_(log),
        disposal_(disposal),
        sessions_(sessions),
        options_(options),
        owner_(owner) {
    const std::string name(wire::kCommonDomain);
    domains_.emplace(name, std::make_unique<Domain>(name));
  }

  // The domain of all clients that are in no other one.
  [[nodiscard]] Domain& common() const { return *domains_.at(std::string(wire::kCommonDomain)); }
  // The domain of that name, made if there is none. Null: there are kMostDomains.
  Domain* domain(const std::string& name);
  // The domain of the clients that see this GPU alone, made if there is none.
  Domain& domain_of_device(uint32_t device);
  [[nodiscard]] const std::map<std::string, std::unique_ptr<Domain>>& domains() const {
    return domains_;
  }
  // Forget the domain if it has neither a worker nor anything that is to happen. It has no session.
  void forget_if_unused(const Domain& domain);

  // Start a worker, unless there is a current one or one will start after a pause.
  void start(Domain& domain);
  // The worker that takes the domain's new clients, or null.
  [[nodiscard]] static Worker* serving(const Domain& domain) {
    return domain.current != nullptr && domain.current->state == WorkerState::kServing
               ? domain.current
               : nullptr;
  }
  // As the last worker that was ready reported them.
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }

  // The worker has been sent something to do: it has to answer from now on.
  static void note_session(Worker& worker) { worker.heartbeat->beat(); }
  // Send to all workers, in any state.
  void tell_all(std::span<const std::byte> message) const;
  // Send to those, except one, that are ready and have not been told to end.
  void tell_others(const Worker& one, std::span<const std::byte> message,
                   std::span<const int> fds = {}) const;
  // New clients go to the next worker, which starts now if one is wanted. The one that serves
  // (there must be one) ends with its last living client, at once if it has none. kStuck: work in
  // it does not end, and what would wait for that work is refused from now on.
  enum class Retires { kWell, kStuck };
  // No older one has to end for that.
  [[nodiscard]] bool may_retire_another(const Domain& domain) const;
  void retire_serving(Domain& domain, Retires how);
  // retire_serving(), if the worker is a current one and holds too many windows for
  // kKeptWindowsMs.
  void look_at_windows(Worker& worker);
  // retire_serving(), of each domain whose serving worker is tainted and has no client.
  void renew_if_tainted();
  // End the retiring workers whose clients have left.
  void end_unused();
  // The worker's contexts are lost, and its sessions are being handed over: the domain's spare
  // serves from now on, or the next worker starts.
  void on_lost(Worker& worker);
  // A spare worker is started unless there is one. False: it can't be, or one could not be made
  // before, and it is not to be tried again.
  enum class Again { kNo, kYes };
  bool start_spare(Domain& domain, Again again = Again::kNo);
  // There are no clients for whom a spare is kept.
  void end_spare(Domain& domain);
  // A worker whose contexts are lost has not ended yet.
  [[nodiscard]] bool has_lost() const;

  // The worker's contexts are lost. It ends now, even if its clients have not read their error yet:
  // new clients need its memory.
  void discard(Worker& worker);

  // End all, then stop the loop.
  void stop();
  [[nodiscard]] bool stopping() const { return stopping_; }

 private:
  // A place for a new worker in which no session has addresses, nor another worker chooses any.
  [[nodiscard]] uint32_t choose_place() const;
  // The process of a new worker. False: it can't be started, and is gone.
  Status start_process(Worker& worker);
  // The spare, if it is ready, becomes the current worker. False: it is not.
  bool use_spare(Domain& domain);
  void serve(Worker& worker);
  void end_lost();
  void retire_if_clogged(Worker& worker);
  void on_late(Worker& worker);
  [[nodiscard]] std::unique_ptr<Heartbeat> make_heartbeat(Worker& worker);
  void on_silent(Worker& worker, uint64_t ms);
  void on_gone(Worker& worker, const std::string& how);
  void on_packet(Worker& worker, Packet& packet);
  Status handle_packet(Worker& worker, Packet& packet);
  Status on_ready(Worker& worker, Packet& packet);
  static Status read_usage(Worker& worker, const Packet& packet);
  [[nodiscard]] bool has_ending_worker() const;
  [[nodiscard]] size_t count_retiring(const Domain& domain) const;
  // End the worker now. Its remaining clients get CUDA_ERROR_MPS_RPC_FAILURE.
  void end(Worker& worker);
  // No worker is current: start the next one, after a pause if several have died in a row.
  void replace(Domain& domain);
  void give_up(Domain& domain, const std::string& reason);

  EventLoop& loop_;
  const Log& log_;
  Disposal& disposal_;
  SessionTable& sessions_;
  const WorkerOptions& options_;
  Owner& owner_;
  std::vector<std::unique_ptr<Worker>> workers_;            // by age
  std::map<std::string, std::unique_ptr<Domain>> domains_;  // by name
  bool stopping_ = false;
  uint32_t started_ = 0;  // workers so far
  std::vector<Device> devices_;
};

}  // namespace openmps::server
