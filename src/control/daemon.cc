// SPDX-License-Identifier: Apache-2.0
// The control daemon at work.
#include "control/daemon.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "control/module_command.h"
#include "wire/control_call.h"
#include "wire/message.h"
#include "wire/trust.h"

namespace openmps::control {
namespace {

// A shell's command or a program's Hello, whichever is longer.
constexpr size_t kMaxIncomingBytes =
    std::max(sizeof(wire::Hello), sizeof(wire::MessageHeader) + wire::kMaxCommandBytes);
// Text in one part of an answer.
constexpr size_t kReplyPartBytes = 32 * 1024;
// How much of an answer the log gets: a list of a thousand clients every second would fill the
// disk.
constexpr size_t kMostLoggedBytes = 4096;
// How long the daemon waits if the system has no descriptors or memory left for a connection.
constexpr uint64_t kAcceptPauseMs = 100;

// Between two looks whether the last answer to a connection has left that is given away.
constexpr uint64_t kGiveAwayPauseMs = 10;

std::string for_log(const std::string& text) {
  if (text.size() <= kMostLoggedBytes) return text;
  const size_t end = text.rfind('\n', kMostLoggedBytes) + 1;
  const size_t lines = static_cast<size_t>(
      std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n'));
  return text.substr(0, end) + format_text("(%zu more lines)", lines);
}

// Programs ask for JSON, every second perhaps, and each answer has other figures: they would fill
// the log.
bool asks_for_json(std::string_view line) {
  const std::vector<std::string> words = split_words(line);
  return std::ranges::any_of(
      words, [](const std::string& word) { return word == "--json" || word == "--format=json"; });
}

// The header of a packet of any version: its layout never changes.
bool is_of_kind(const std::vector<std::byte>& data, wire::MessageKind kind) {
  wire::MessageHeader header{.kind = wire::MessageKind{}, .bytes = 0};
  if (data.size() < sizeof(header)) return false;
  memcpy(&header, data.data(), sizeof(header));
  return header.magic == wire::kMagic && header.kind == kind;
}

}  // namespace

Daemon::Daemon(EventLoop& loop, const Log& log, PipeDirectory& directory,
               std::string server_program, UniqueFd server_log, uint64_t first_packet_ms)
    : loop_(loop),
      log_(log),
      directory_(directory),
      first_packet_ms_(first_packet_ms),
      disposal_(loop, Disposal::Peers::kAnybody),
      doors_(loop, directory, disposal_,
             [this](int listener, const Door& door) { accept_one(listener, door); }),
      servers_(loop, log, disposal_, doors_, std::move(server_program), std::move(server_log),
               directory.socket_path()),
      commands_(servers_,
                {[this](std::optional<uint32_t> timeout_s, Done done) {
                   quit(timeout_s, std::move(done));
                 },
                 [this](Done done) { leave(std::move(done)); }, [this] { return reload(); }}) {}

// Connections that were not accepted end with the listener, and so do descriptors sent over them.
Daemon::~Daemon() { disposal_.close(std::move(listener_)); }

Status Daemon::start(UniqueFd listener) {
  listener_ = std::move(listener);
  servers_.restore(directory_.kept(), [this](const std::string& text) {
    const Status kept = directory_.keep(text);
    if (!kept.ok()) log_.write("The next daemon would not know servers: " + kept.message());
  });
  if (directory_.was_abandoned()) {
    log_.write("The last daemon here was killed: its servers may come back");
    waits_for_servers_ = true;
    loop_.call_after(kRejoinGraceMs, [this] { on_servers_back(); });
  } else {
    servers_.start_all_named();
  }
  return loop_.watch(listener_.get(), EPOLLIN,
                     [this](uint32_t) { accept_one(listener_.get(), Door{}); });
}

void Daemon::accept_one(int listener, const Door& door) {
  ForeignFd accepted(disposal_, UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)));
  if (!accepted.valid()) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    log_.write(std::string("Accepting a connection failed: ") + strerror(errno));
    make_room();
    pause_accepting();
    return;
  }
  log_.write("Accepting connection...");
  Result<PeerCredentials> who = peer_credentials(accepted.get());
  if (!who.ok()) {
    log_.write("User did not send valid credentials");
    return;
  }
  if (connections_.size() >= kMaxConnections) make_room();
  const uint64_t id = ++last_connection_;
  Connection& connection = connections_[id];
  connection.who = *who;
  connection.door = door;
  connection.last_use = now_ns();
  connection.peer = std::make_unique<PacketPeer>(
      loop_, accepted.take(),
      PacketPeer::Options{.max_packet_bytes = kMaxIncomingBytes, .disposal = &disposal_},
      PacketPeer::Callbacks{[this, id](Packet packet) { on_packet(id, std::move(packet)); },
                            [this, id](const std::string&) { drop(id); }});
  connection.first_packet_timer = loop_.call_after(first_packet_ms_, [this, id] {
    connections_.at(id).first_packet_timer = 0;
    log_.write("Unable to read new connection type information");
    drop(id);
  });
  if (!connection.peer->start().ok()) drop(id);
}

void Daemon::pause_accepting() {
  const auto all = [this] {
    std::vector<int> listeners = doors_.listeners();
    listeners.push_back(listener_.get());
    return listeners;
  };
  for (const int one : all()) loop_.change_events(one, 0);
  loop_.call_after(kAcceptPauseMs, [this, all] {
    for (const int one : all()) loop_.change_events(one, EPOLLIN);
  });
}

void Daemon::make_room() {
  uint64_t oldest = 0;
  for (const auto& [id, connection] : connections_) {
    if (connection.busy) continue;
    if (oldest == 0 || connection.last_use < connections_.at(oldest).last_use) oldest = id;
  }
  if (oldest == 0) return;
  log_.write(format_text("Too many connections: closing the one that was idle longest (PID %d)",
                         static_cast<int>(connections_.at(oldest).who.pid)));
  drop(oldest);
}

void Daemon::on_packet(uint64_t id, Packet packet) {
  Connection& connection = connections_.at(id);
  connection.last_use = now_ns();
  if (wire::is_demand_for_proof(packet.data)) return prove(id, connection);
  if (waits_for_servers_ && !is_of_kind(packet.data, wire::MessageKind::kRejoin)) {
    loop_.cancel(std::exchange(connection.first_packet_timer, 0));
    connection.peer->pause_reading(true);
    connection.waiting = std::move(packet);
    return;
  }
  if (connection.is_shell) {
    on_command(id, connection, packet);
  } else {
    on_first_packet(id, packet);
  }
}

// A program demands it once, before it sends anything else.
void Daemon::prove(uint64_t id, Connection& connection) {
  const Status given = connection.has_proof || connection.first_packet_timer == 0
                           ? Status(CUDA_ERROR_INVALID_VALUE, "it has been asked for before")
                           : wire::give_proof(connection.peer->fd(), connection.who.uid);
  connection.has_proof = true;
  if (given.ok()) return;
  log_.write(format_text("A proof for PID %d of user %u: %s", static_cast<int>(connection.who.pid),
                         connection.who.uid, given.message().c_str()));
  drop(id);
}

void Daemon::on_servers_back() {
  waits_for_servers_ = false;
  servers_.start_all_named();
  std::vector<uint64_t> waiting;
  for (const auto& [id, connection] : connections_) {
    if (connection.waiting) waiting.push_back(id);
  }
  for (const uint64_t id : waiting) {
    Connection& connection = connections_.at(id);
    connection.peer->pause_reading(false);
    on_packet(id, *std::exchange(connection.waiting, std::nullopt));
  }
}

void Daemon::on_first_packet(uint64_t id, const Packet& packet) {
  Connection& connection = connections_.at(id);
  loop_.cancel(std::exchange(connection.first_packet_timer, 0));
  wire::Hello hello;
  const Status read = wire::read_message(packet.data, &hello);
  const Status same = read.ok() ? wire::check_build(hello.build, "client", "daemon") : Status();
  if (read.ok() && same.ok()) {
    NewClient client{ForeignFd(disposal_, connection.peer->release()),
                     static_cast<uint32_t>(connection.who.pid),
                     User{connection.who.uid, connection.who.gid}, hello, connection.door};
    drop(id);
    servers_.admit(std::move(client));
    return;
  }
  if (wire::Rejoin rejoin;
      connection.door.is_main() && wire::read_message(packet.data, &rejoin).ok()) {
    const PeerCredentials who = connection.who;
    ForeignFd server(disposal_, connection.peer->release());
    drop(id);
    servers_.take_back(User{who.uid, who.gid}, who.pid, rejoin, std::move(server));
    return;
  }
  if (is_of_kind(packet.data, wire::MessageKind::kHello)) {
    const std::string reason =
        same.ok() ? "client and daemon are of different versions of OpenMPS: " + read.message()
                  : same.message();
    log_.write(format_text("NEW CLIENT %d from user %u: refused, %s",
                           static_cast<int>(connection.who.pid), connection.who.uid,
                           reason.c_str()));
    refuse_client(connection.peer->fd(), CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
    drop(id);
    return;
  }
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (header.ok() && header->kind == wire::MessageKind::kUiCommand) {
    log_.write("NEW UI");
    connection.is_shell = true;
    on_command(id, connection, packet);
    return;
  }
  log_.write("Unable to read new connection type information");
  drop(id);
}

void Daemon::on_command(uint64_t id, Connection& connection, const Packet& packet) {
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (!header.ok() || header->kind != wire::MessageKind::kUiCommand) {
    log_.write("A shell sent what is not a command");
    drop(id);
    return;
  }
  const std::string_view line(
      reinterpret_cast<const char*>(packet.data.data()) + sizeof(wire::MessageHeader),
      packet.data.size() - sizeof(wire::MessageHeader));
  const std::string user = std::to_string(connection.who.uid);
  log_.write("command of user " + user, "Cmd:" + printable(line));
  connection.busy = true;
  connection.peer->pause_reading(true);
  const bool logs_answer = !asks_for_json(line);
  const Done done = [this, id, user, logs_answer](const Reply& reply) {
    if (logs_answer && !reply.text.empty()) {
      log_.write("answer to user " + user, for_log(reply.text));
    }
    answer(id, reply);
  };
  const User caller{connection.who.uid, connection.who.gid};
  if (is_module_command(line)) {
    return run_module_command(line, servers_, caller, connection.door, done);
  }
  const Command command = parse_command(line);
  if (!command.unexpected.empty()) {
    log_.write("unexpected of user " + user, "Ignoring " + printable(command.unexpected) +
                                                 ", which " + printable(command.word) +
                                                 " does not take");
  }
  commands_.run(command, {caller, connection.who.pid, connection.door, connection.peer->fd()},
                done);
}

void Daemon::answer(uint64_t id, const Reply& reply) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // the shell has gone
  Connection& connection = found->second;
  std::string_view rest = reply.text;
  do {
    const std::string_view text = rest.substr(0, kReplyPartBytes);
    rest.remove_prefix(text.size());
    wire::UiReply part;
    part.exit_status = static_cast<uint32_t>(reply.exit_status);
    part.more = rest.empty() ? 0 : 1;
    part.header.bytes = static_cast<uint32_t>(sizeof(part) + text.size());
    std::vector<std::byte> packet(part.header.bytes);
    memcpy(packet.data(), &part, sizeof(part));
    memcpy(packet.data() + sizeof(part), text.data(), text.size());
    connection.peer->send(packet);
  } while (!rest.empty());
  if (reply.gives_connection_away) return give_away(id);
  connection.busy = false;
  connection.last_use = now_ns();
  connection.peer->pause_reading(false);
}

// Others have duplicates, and read and write there now: it is closed here, and not shut down.
void Daemon::give_away(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  PacketPeer& peer = *found->second.peer;
  if (!peer.drained()) {  // the answer has still to go
    loop_.call_after(kGiveAwayPauseMs, [this, id] { give_away(id); });
    return;
  }
  const ForeignFd closed(disposal_, peer.release());
  drop(id);
}

void Daemon::drop(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  if (found->second.is_shell) log_.write("UI closed");
  loop_.cancel(found->second.first_packet_timer);
  connections_.erase(found);
}

void Daemon::configure(const std::string& path, Config config) {
  config_path_ = path;
  log_.write("Configuration " + path);
  for (const std::string& line : servers_.configure(std::move(config))) log_.write(line);
}

Reply Daemon::reload() {
  if (config_path_.empty()) {
    return {"There is nothing to reload: the daemon was started without --config\n", 1};
  }
  Result<Config> config = read_config(config_path_);
  if (!config.ok()) return {config.status().message() + "\nNothing is changed\n", 1};
  if (const Status fits = check_mode(*config, servers_.requires_partitions()); !fits.ok()) {
    return {config_path_ + ": " + fits.message() + "\nNothing is changed\n", 1};
  }
  std::string text;
  for (const std::string& line : servers_.configure(std::move(config).value())) text += line + "\n";
  return {text.empty() ? "Nothing has changed\n" : text};
}

void Daemon::prepare_devices() {
  servers_.ensure_server(User{geteuid(), getegid()}, [this](const Status& started) {
    if (!started.ok()) log_.write("No server is started: " + started.message());
  });
}

void Daemon::on_signal(int signal) {
  log_.write(format_text("Signal %d (%s)", signal, strsignal(signal)));
  if (signal == SIGHUP && !config_path_.empty()) {
    log_.write(for_log(reload().text));
    return;
  }
  quit(signalled_ ? std::optional<uint32_t>(0) : std::nullopt, [](const Reply&) {});
  signalled_ = true;
}

void Daemon::leave(Done done) {
  if (leaving_) return done({"The daemon ends already\n", 1});
  leaving_ = true;
  log_.write("The daemon ends. Its servers go on until their last clients have left");
  on_quit_();
  // Who has connected to a socket of ours is served; nobody else can connect. A service manager's
  // socket keeps those who connect for the next daemon.
  if (!directory_.remove_socket()) loop_.change_events(listener_.get(), 0);
  doors_.remove_sockets();
  leave_when_quiet(0, std::move(done));
}

void Daemon::leave_when_quiet(uint64_t waited_ms, Done done) {
  const bool may_be_client = std::ranges::any_of(connections_, [](const auto& connection) {
    return connection.second.first_packet_timer != 0 || connection.second.waiting;
  });
  // Not before one tick: connections that wait to be accepted are accepted in between.
  const bool is_quiet = waited_ms != 0 && !may_be_client && servers_.has_passed_on_all();
  if (!is_quiet && waited_ms < kLongestLeaveMs) {
    loop_.call_after(kLeaveTickMs, [this, waited_ms, done = std::move(done)] {
      leave_when_quiet(waited_ms + kLeaveTickMs, done);
    });
    return;
  }
  // What is left says to the next daemon that servers may come back.
  const bool has_successor_use = !servers_.all().empty() || servers_.has_state();
  doors_.close_all([has_successor_use](const auto&, const auto&) { return has_successor_use; });
  if (has_successor_use) {
    directory_.leave_to_next();
  } else {
    directory_.remove_entries();
  }
  done({});
  loop_.stop();
}

void Daemon::quit(std::optional<uint32_t> timeout_s, Done done) {
  on_quit_();
  servers_.shut_down(timeout_s, [this, done = std::move(done)] {
    // The shell learns of the end only when nothing is left.
    doors_.close_all([this](const std::string& server, const std::string& name) {
      return servers_.is_configured(server, name);
    });
    directory_.remove_entries();
    done({});
    loop_.stop();
  });
}

}  // namespace openmps::control
