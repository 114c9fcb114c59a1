// SPDX-License-Identifier: Apache-2.0
// The control daemon at work: accepts connections, tells programs from shells, hands programs to
// their user's server, answers shells. Single-threaded, never blocks on a peer, never loads CUDA.
// Made by daemon_start.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/packet_peer.h"
#include "control/command_runner.h"
#include "control/doors.h"
#include "control/pipe_directory.h"
#include "control/server_pool.h"

namespace openmps::control {

// Connections that the daemon itself holds: shells, and programs that have not sent Hello. At the
// limit the daemon closes the one that has been idle longest, so idle peers can't block others.
inline constexpr size_t kMaxConnections = 512;
// How long a peer may take for its first packet, which honest peers send at once.
inline constexpr uint64_t kFirstPacketMs = 10'000;
// How long servers of a killed daemon have to connect to the next one (they try every
// server::kRejoinMs). Programs and shells wait meanwhile, so that no user gets a second server.
inline constexpr uint64_t kRejoinGraceMs = 2000;
// How often a daemon that leaves its servers looks whether a client still waits for one, and for
// how long at most: a server starts in 10 s on a machine with eight GPUs.
inline constexpr uint64_t kLeaveTickMs = 10;
inline constexpr uint64_t kLongestLeaveMs = 30'000;

class Daemon {
 public:
  // A peer that sends no packet in the first `first_packet_ms` is dropped.
  Daemon(EventLoop& loop, const Log& log, PipeDirectory& directory, std::string server_program,
         UniqueFd server_log, uint64_t first_packet_ms = kFirstPacketMs);
  ~Daemon();

  Status start(UniqueFd listener);
  // Call when the daemon begins to end.
  void on_quit(std::function<void()> call) { on_quit_ = std::move(call); }
  void on_server_ready(std::function<void()> call) { servers_.on_server_ready(std::move(call)); }
  // The limits that `config` states, read from `path`, which reload() reads again.
  void configure(const std::string& path, Config config);
  // For the command reload and SIGHUP. A wrong file changes nothing.
  Reply reload();
  // For -S.
  void require_partitions() { servers_.require_partitions(); }
  // For -m.
  void serve_everybody() { servers_.serve_everybody(); }
  // Start a server for the daemon's own user at once (-q).
  void prepare_devices();
  // SIGHUP: as the command reload, if there is a configuration. Otherwise as quit; a second one
  // forces the servers.
  void on_signal(int signal);

 private:
  struct Connection {
    std::unique_ptr<PacketPeer> peer;
    PeerCredentials who;
    Door door;
    bool is_shell = false;
    bool has_proof = false;  // that the daemon is root's, as it has demanded
    bool busy = false;       // one of its commands is being carried out
    uint64_t last_use = 0;   // now_ns()
    EventLoop::TimerId first_packet_timer = 0;
    std::optional<Packet>
        waiting;  // its first packet, while servers of the last daemon may come back
  };
  void accept_one(int listener, const Door& door);
  void make_room();
  void pause_accepting();
  void on_packet(uint64_t id, Packet packet);
  void on_servers_back();
  void prove(uint64_t id, Connection& connection);
  void on_command(uint64_t id, Connection& connection, const Packet& packet);
  void on_first_packet(uint64_t id, const Packet& packet);
  void answer(uint64_t id, const Reply& reply);
  void give_away(uint64_t id);
  void drop(uint64_t id);
  void quit(std::optional<uint32_t> timeout_s, Done done);
  // quit --leave-servers: the clients that have connected get to their servers first.
  void leave(Done done);
  void leave_when_quiet(uint64_t waited_ms, Done done);

  EventLoop& loop_;
  const Log& log_;
  PipeDirectory& directory_;
  const uint64_t first_packet_ms_;
  Disposal disposal_;  // of descriptors that came from any user
  UniqueFd listener_;
  Doors doors_;
  ServerPool servers_;
  CommandRunner commands_;
  std::map<uint64_t, Connection> connections_;
  uint64_t last_connection_ = 0;
  bool waits_for_servers_ = false;
  bool signalled_ = false;
  bool leaving_ = false;
  std::function<void()> on_quit_ = [] {};
  std::string config_path_;  // empty: none was given
};

}  // namespace openmps::control
