// SPDX-License-Identifier: Apache-2.0
// The sessions of one server: their address windows, and what the server holds for each (host file,
// header page, the client's connection). Used by Server and Workers on the loop's thread; decides
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/disposal.h"
#include "base/packet_peer.h"
#include "base/shared_memory.h"
#include "wire/channel_view.h"
#include "wire/handshake.h"

namespace openmps::server {

struct Domain;
struct Recovery;
struct Worker;

// kOpening: the worker has been asked. kActive: the client has its Welcome. kMoving: its worker is
// lost, and another one is to make it again. kEnding: the worker has been asked to close it; the
// client is gone or cut off.
enum class SessionState { kOpening, kActive, kMoving, kEnding };

struct Session {
  uint32_t id = 0;  // unique within the server, from 1: the "context ID" of the logs
  uint32_t window = 0;
  SessionState state = SessionState::kOpening;
  bool has_lost_worker = false;        // another worker died while it opened this client's session
  Domain* domain = nullptr;            // where it belongs; its worker may be of another one still
  Worker* worker = nullptr;            // that has the session; null: it waits for one, kMoving
  EventLoop::TimerId drain_timer = 0;  // while it ends
  wire::Admit admit;                   // the client's identity and wishes
  std::optional<uint32_t> only_gpu;    // that the client sees, of several (sole_visible_device())
  wire::Grant grant;                   // what the session is granted now
  UniqueFd host_file;
  Mapping header_page;
  UniqueFd journal;  // invalid: the session can't move
  Mapping journal_page;
  uint32_t moves = 0;  // to another worker
  // kHeld: it is suspended, also in its next worker.
  wire::Residence residence = wire::Residence::kDevice;
  bool is_leaving = false;             // its worker has been asked to let it go (LeaveSession)
  uint32_t leave_tries = 0;            // how often its worker has
  uint32_t tries = 0;                  // of the move that is under way
  std::shared_ptr<Recovery> recovery;  // of which the move is a part
  wire::Adoption adoption{};           // how the move began,
  wire::HandedOver over;               // and what is to become of it; kMoving
  // Where in its ring a command was being executed when a worker died, the last such command; none.
  std::optional<uint64_t> died_at;
  EventLoop::TimerId adoption_timer = 0;  // while it is made again, or is to leave
  bool is_late = false;                   // that timer has ended once (kReadFirstMs)
  std::unique_ptr<PacketPeer> client;     // null once it is gone
  uint32_t passing = 0;                   // descriptors that the worker has not confirmed
  // Descriptors of the client for its next worker.
  std::vector<std::pair<wire::PassDescriptor, ForeignFd>> parked;
  uint32_t history_group = 0;  // History's number; 0: the client has had no session yet
  wire::Usage used;            // in workers that have had it before

  // What it has used, in all workers.
  [[nodiscard]] wire::Usage usage() const;
  // It waits for a worker from now on.
  void leave_worker();

  [[nodiscard]] wire::ChannelHeader& header() const {
    return wire::ChannelView(header_page.address()).header();
  }
  // For the log: "{PID: 4711, Context ID: 3}".
  [[nodiscard]] std::string name() const;
  // Why the session could not be made again now; "": it could.
  [[nodiscard]] std::string stays() const;
  // What its worker has left, when that executes nothing any more.
  struct Left {
    bool is_unfinished = false;  // work that its streams were given may not have ended
    bool is_in_command = false;  // a command was being executed,
    uint64_t position = 0;       // behind this (RingControl::head)
    bool has_commands = false;   // the client has given more
  };
  // Errors: those of map_shared().
  [[nodiscard]] Result<Left> look_at_left() const;
  // The session has no worker, and its client waits for nothing, as far as can be told.
  [[nodiscard]] bool seems_idle() const;
  // Another worker has made the session again: its clients' waits go on. `culprit`: a sentence for
  // them.
  void go_on(const std::string& culprit) const;
  // Make `status` the session's sticky status unless it already has one, and wake its waiters.
  void end_with(CUresult status) const;
};

// The last windows of a server are for groups with few clients: one group, which may be a container
// that starts programs without end, leaves room for 16 others with some programs each.
inline constexpr uint32_t kKeptWindows = wire::kMaxWindows / 16;
inline constexpr uint32_t kFewClients = 4;

class SessionTable {
 public:
  // A session of the domain in state kOpening with a free window, its host file made and its header
  // filled.
  // Errors: CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, and those of create_shared_file and map_shared.
  Result<Session*> create(const wire::Admit& admit, Domain& domain);
  [[nodiscard]] Session* find(uint32_t id) const;
  void erase(uint32_t id);
  // The session's worker uses the window from now on, until it sends WindowFree or is gone.
  void lend_window(const Session& session);
  // False: the worker does not have the window.
  [[nodiscard]] bool return_window(uint32_t window, const Worker& worker);
  void return_windows(const Worker& worker);
  // How many windows of ended sessions the worker still has.
  [[nodiscard]] uint32_t kept_windows(const Worker& worker) const;
  // Where sessions have addresses beside their windows (wire::places_of()).
  [[nodiscard]] uint32_t places() const;
  [[nodiscard]] bool empty() const { return sessions_.empty(); }
  // Sessions whose client is connected, or waits for its Welcome; and those of one domain.
  [[nodiscard]] uint32_t clients() const;
  [[nodiscard]] uint32_t clients(const Domain& domain) const;
  [[nodiscard]] bool has_clients(const Worker& worker) const;
  // Whether a session of the worker, in any state, has tainted it.
  [[nodiscard]] bool has_tainting_session(const Worker& worker) const;
  // Sessions in any state.
  [[nodiscard]] std::vector<uint32_t> ids_of(const Worker& worker) const;
  [[nodiscard]] const std::map<uint32_t, std::unique_ptr<Session>>& all() const {
    return sessions_;
  }

 private:
  [[nodiscard]] Status has_room_for(const wire::Admit& admit) const;

  std::map<uint32_t, std::unique_ptr<Session>> sessions_;
  // A window is free if no session has it and it is lent to no worker. A session that has moved
  // may have it lent to its former worker, too.
  struct Window {
    bool has_session = false;
    std::set<const Worker*> workers;
    [[nodiscard]] bool is_free() const { return !has_session && workers.empty(); }
  };
  std::array<Window, wire::kMaxWindows> windows_{};
  uint32_t last_id_ = 0;
};

}  // namespace openmps::server
