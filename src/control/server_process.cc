// SPDX-License-Identifier: Apache-2.0
// One openmps-server as the daemon sees it.
#include "control/server_process.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "wire/message.h"

namespace openmps::control {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr int kServerControlFd = 3;  // the number under which the server finds its daemon

// The real user of a process, from /proc/PID/status: files in /proc of a confined one are root's.
std::optional<uid_t> user_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    uid_t uid = 0;
    if (word == "Uid:" && status >> uid) return uid;
  }
  return std::nullopt;
}

uint32_t id_of(const auto& line) { return line.id; }
uint32_t id_of(const wire::TotalsRow& row) { return row.number; }

// Adds one part of an answer. Ids only grow, so there is a last part; the number of rows is bounded
// by what a server can have at once.
template <typename Line>
Status take_rows(std::vector<Line>* all, std::vector<Line>& part, bool* more) {
  for (Line& line : part) {
    if (!all->empty() && id_of(line) <= id_of(all->back())) {
      return Status(CUDA_ERROR_INVALID_VALUE, "rows that are not in the order of their ids");
    }
    all->push_back(std::move(line));
  }
  *more = *more && all->size() < 2 * wire::kMaxWindows;
  return Status();
}

Status signal_process(int process, int signal) {
  if (syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0) == 0) return Status();
  return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("pidfd_send_signal: ") + strerror(errno));
}

}  // namespace

Result<ServerAnswer> read_answer(std::span<const std::byte> data, pid_t server) {
  wire::Answer head;
  if (data.size() < sizeof(head)) return Status(CUDA_ERROR_INVALID_VALUE, "a short answer");
  memcpy(&head, data.data(), sizeof(head));
  data = data.subspan(sizeof(head));
  const size_t row_bytes = head.query == wire::QueryKind::kGroups   ? sizeof(wire::GroupRow)
                           : head.query == wire::QueryKind::kTotals ? sizeof(wire::TotalsRow)
                                                                    : sizeof(wire::ClientRow);
  if (head.rows > data.size() / row_bytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, "an answer with more rows than bytes");
  }
  ServerAnswer answer;
  answer.answered = true;
  answer.state = head.state;
  answer.more = head.more != 0;
  answer.result = static_cast<CUresult>(head.result);
  answer.amount = head.amount;
  answer.stayed = head.stayed;
  answer.moved_bytes = head.moved_bytes;
  answer.stayed_bytes = head.stayed_bytes;
  for (uint32_t i = 0; i < head.rows && head.query == wire::QueryKind::kGroups; ++i) {
    wire::GroupRow row;
    memcpy(&row, data.data() + i * sizeof(row), sizeof(row));
    answer.groups.push_back(GroupLine{printable(field_text(row.name)), row.number,
                                      static_cast<uint32_t>(server), row.members, row.limits,
                                      std::to_array(row.memory)});
  }
  if (head.query == wire::QueryKind::kTotals) {
    answer.totals.resize(head.rows);
    if (head.rows != 0) memcpy(answer.totals.data(), data.data(), head.rows * row_bytes);
    return answer;
  }
  for (uint32_t i = 0; i < head.rows && head.query != wire::QueryKind::kGroups; ++i) {
    wire::ClientRow row;
    memcpy(&row, data.data() + i * sizeof(row), sizeof(row));
    answer.clients.push_back(ClientLine{row.pid, row.id, static_cast<uint32_t>(server),
                                        row.namespace_inode, printable(field_text(row.device_uuid)),
                                        printable(field_text(row.command)), row.ending != 0,
                                        row.usage, row.active_thread_percentage, row.quality,
                                        printable(field_text(row.group)), row.partition});
    answer.clients.back().silent = row.silent != 0;
    answer.clients.back().claimed_pid = row.claimed_pid;
    answer.clients.back().moves = row.moves;
    answer.clients.back().stays = printable(field_text(row.stays));
    answer.clients.back().domain = printable(field_text(row.domain));
    answer.clients.back().residence = row.residence;
  }
  if (head.query == wire::QueryKind::kInspect && !data.empty()) {
    Inspected& inspected = answer.inspected.emplace();
    if (data.size() >= sizeof(inspected.report)) {
      memcpy(&inspected.report, data.data(), sizeof(inspected.report));
      data = data.subspan(sizeof(inspected.report));
    }
    const uint32_t waits = inspected.report.waits;
    if (waits > wire::kMaxWaitRows || data.size() != waits * sizeof(wire::WaitRow)) {
      return Status(CUDA_ERROR_INVALID_VALUE, "a report with other waits than bytes");
    }
    inspected.waits.resize(waits);
    if (waits != 0) memcpy(inspected.waits.data(), data.data(), data.size());
  }
  if (head.query == wire::QueryKind::kPartitions) {
    answer.partitions.resize(data.size() / sizeof(wire::StaticPartition));
    if (data.size() != answer.partitions.size() * sizeof(wire::StaticPartition)) {
      return Status(CUDA_ERROR_INVALID_VALUE, "an answer with a part of a partition");
    }
    if (!data.empty()) memcpy(answer.partitions.data(), data.data(), data.size());
  }
  if (head.query == wire::QueryKind::kDevices) {
    answer.devices = parse_devices({reinterpret_cast<const char*>(data.data()), data.size()});
  }
  return answer;
}

ServerProcess::ServerProcess(EventLoop& loop, Disposal& disposal, std::string name, User user,
                             Settings settings, Callbacks callbacks)
    : loop_(loop),
      disposal_(disposal),
      name_(std::move(name)),
      user_(user),
      settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      heartbeat_(loop, kPingMs, kSilentMs,
                 {[this] { return probe(); }, [this] { return has_to_answer_; },
                  [this](uint64_t ms) {
                    callbacks_.on_trouble(format_text(
                        "has not answered for %llu ms: it is %s. New clients of its "
                        "user are refused until it does",
                        static_cast<unsigned long long>(ms), describe_state(pid_).c_str()));
                  },
                  [this](uint64_t ms) {
                    callbacks_.on_trouble(format_text("answers again, after %llu ms",
                                                      static_cast<unsigned long long>(ms)));
                  }}) {}

ServerProcess::~ServerProcess() {
  loop_.cancel(kill_timer_);
  for (const auto& [ticket, question] : questions_) loop_.cancel(question.timer);
  if (process_.valid()) {
    loop_.forget(process_.get());
  } else if (pid_ != 0) {
    loop_.forget_child(pid_);
  }
}

Status ServerProcess::start(const Program& program) {
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  if (!sockets.ok()) return sockets.status();
  SpawnOptions options;
  options.program = program.path;
  options.arguments = {"--control-fd",     std::to_string(kServerControlFd),
                       "--control-socket", program.control_socket,
                       "--name",           name_};
  options.fds = {
      {sockets->second.get(), kServerControlFd}, {program.log_fd, 1}, {program.log_fd, 2}};
  if (!program.devices.empty()) {
    std::string visible;
    for (const std::string& uuid : program.devices) visible += (visible.empty() ? "" : ",") + uuid;
    options.environment = {{"CUDA_VISIBLE_DEVICES", visible}};
  }
  options.new_session = true;
  if (user_.uid != geteuid()) {
    options.uid = user_.uid;
    options.gid = user_.gid;
  }
  Result<pid_t> pid = spawn(options);
  if (!pid.ok()) return pid.status();
  pid_ = pid.value();
  OPENMPS_RETURN_IF_ERROR(loop_.watch_child(pid_, [this](int status) {
    how_it_ended_ = describe_exit(status);
    finish_if_gone();
  }));
  return open_connection(std::move(sockets->first));
}

Status ServerProcess::adopt(pid_t pid, ForeignFd* connection) {
  pid_ = pid;
  process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by itself
  if (!process_.valid()) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("pidfd_open: ") + strerror(errno));
  }
  OPENMPS_RETURN_IF_ERROR(loop_.watch(process_.get(), EPOLLIN, [this](uint32_t) {
    loop_.change_events(process_.get(), 0);
    how_it_ended_ = "has ended";
    finish_if_gone();
  }));
  // The pidfd refers to that process if it still lives after the check.
  const std::optional<uid_t> uid = user_of(pid);
  OPENMPS_RETURN_IF_ERROR(signal_process(process_.get(), 0));
  if (uid != user_.uid) {
    return Status(CUDA_ERROR_NOT_PERMITTED, "the process is not that user's");
  }
  return open_connection(connection->take());
}

Status ServerProcess::open_connection(UniqueFd connection) {
  peer_ = std::make_unique<PacketPeer>(
      loop_, std::move(connection),
      PacketPeer::Options{.max_packet_bytes = wire::kMaxMessageBytes, .disposal = &disposal_},
      PacketPeer::Callbacks{[this](const Packet& packet) { on_packet(packet); },
                            [this](const std::string&) { on_connection_closed(); },
                            [this](const std::string& why) {
                              callbacks_.on_trouble("is not told of clients at once: " + why);
                            }});
  return peer_->start();
}

Status ServerProcess::admit(const wire::Admit& admit, int client) {
  if (heartbeat_.is_silent()) {
    return Status(CUDA_ERROR_MPS_SERVER_NOT_READY,
                  format_text("server %d of user %u does not answer: it is %s",
                              static_cast<int>(pid_), user_.uid, describe_state(pid_).c_str()));
  }
  if (peer_ == nullptr) return Status();  // it has gone, and on_gone() follows
  if (peer_->queued() >= wire::kMaxWindows) {
    return Status(CUDA_ERROR_MPS_SERVER_NOT_READY,
                  format_text("server %d of user %u can't be told of more clients now",
                              static_cast<int>(pid_), user_.uid));
  }
  peer_->send(wire::message_bytes(admit), {&client, 1});
  has_to_answer_ = true;
  heartbeat_.beat();
  return Status();
}

bool ServerProcess::probe() {
  // A probe behind messages that wait to be sent would not reach the server.
  if (peer_ == nullptr || !peer_->drained()) return false;
  peer_->send(wire::message_bytes(wire::Probe{}));
  return true;
}

void ServerProcess::set_group(const wire::SetGroup& group) {
  if (peer_ != nullptr) peer_->send(wire::message_bytes(group));
}

void ServerProcess::ask(wire::Query query, std::function<void(ServerAnswer)> done, int descriptor) {
  using wire::QueryKind;
  const bool is_for_devices = query.query == QueryKind::kDevices;
  if (is_silent() && !is_for_devices) return done(ServerAnswer{});
  const uint32_t ticket = ++last_ticket_;
  // A server without a connection is about to be reaped: the timer or finish_if_gone() answers.
  const auto give_up = [this, ticket] {
    ++owed_;
    note_slow();
    finish_question(ticket, ServerAnswer{});
  };
  constexpr QueryKind kSlow[] = {QueryKind::kDevices, QueryKind::kTerminate, QueryKind::kRenew,
                                 QueryKind::kMove,    QueryKind::kSuspend,   QueryKind::kResume};
  const bool waits = std::ranges::find(kSlow, query.query) != std::end(kSlow);
  questions_[ticket] =
      Question{std::move(done), waits ? 0 : loop_.call_after(patience_ms(), give_up), now_ns(), {}};
  query.ticket = ticket;
  send_query(query, descriptor);
}

uint64_t ServerProcess::patience_ms() {
  if (now_ns() - last_slow_ns_ > kForgiveMs * kNsPerMs) halvings_ = 0;
  return kAnswerMs >> halvings_;
}

void ServerProcess::note_slow() {
  if (user_.uid == geteuid()) return;
  last_slow_ns_ = now_ns();
  halvings_ = std::min(halvings_ + 1, kMostHalvings);
}

void ServerProcess::send_query(const wire::Query& query, int descriptor) {
  if (peer_ == nullptr) return;
  peer_->send(wire::message_bytes(query), std::span(&descriptor, descriptor < 0 ? 0 : 1));
}

void ServerProcess::ask_to_shut_down() { shut_down(0); }

void ServerProcess::force_shutdown() {
  shut_down(1);
  kill_after(kForcedExitMs);
}

void ServerProcess::kill_after(uint64_t delay_ms) {
  if (kill_timer_ != 0) return;
  kill_timer_ = loop_.call_after(delay_ms, [this] {
    if (how_it_ended_.empty()) kill_now();
  });
}

void ServerProcess::kill_now() {
  if (process_.valid()) {
    (void)signal_process(process_.get(), SIGKILL).ok();
  } else {
    kill(pid_, SIGKILL);
  }
}

void ServerProcess::shut_down(uint32_t force) {
  wire::Shutdown shutdown;
  shutdown.force = force;
  if (peer_ != nullptr) peer_->send(wire::message_bytes(shutdown));
}

void ServerProcess::on_packet(const Packet& packet) {
  has_to_answer_ = false;
  heartbeat_.heard();
  if (handle_packet(packet).ok()) return;
  // A server that breaks the protocol is killed; its end is reported like any other.
  if (how_it_ended_.empty()) kill_now();
}

Status ServerProcess::handle_packet(const Packet& packet) {
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (!header.ok()) return header.status();
  if (header->kind == wire::MessageKind::kServerReady) {
    wire::ServerReady ready;
    OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &ready));
    // The program was replaced while this daemon ran: it could not read the clients passed on.
    const Status same = wire::check_build(ready.build, "server", "daemon");
    if (!same.ok()) {
      callbacks_.on_ready(same.code(), same.message() + ": restart the daemon");
      return Status();
    }
    callbacks_.on_ready(static_cast<CUresult>(ready.result), printable(field_text(ready.reason)));
    return Status();
  }
  if (header->kind == wire::MessageKind::kShutdownRefused) {
    wire::ShutdownRefused refused;
    OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &refused));
    callbacks_.on_shutdown_refused(refused.active_clients);
    return Status();
  }
  if (header->kind == wire::MessageKind::kAnswer) return on_answer(packet.data);
  if (header->kind == wire::MessageKind::kTotals) {
    wire::Totals totals;
    OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &totals));
    callbacks_.on_totals(totals.row);
    return Status();
  }
  if (header->kind == wire::MessageKind::kEvent) {
    wire::Event event;
    OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &event));
    callbacks_.on_event(event);
    return Status();
  }
  if (header->kind == wire::MessageKind::kAlive) {
    wire::Alive alive;
    return wire::read_message(packet.data, &alive);
  }
  return Status(CUDA_ERROR_INVALID_VALUE, "a kind of message that no server sends");
}

Status ServerProcess::on_answer(std::span<const std::byte> data) {
  wire::Answer head;
  if (data.size() < sizeof(head)) return Status(CUDA_ERROR_INVALID_VALUE, "a short answer");
  memcpy(&head, data.data(), sizeof(head));
  const uint32_t ticket = head.ticket;
  const auto found = questions_.find(ticket);
  if (found == questions_.end()) return on_late_answer(ticket);
  Result<ServerAnswer> answer = read_answer(data, pid_);
  if (!answer.ok()) return answer.status();
  const bool is_timed = found->second.timer != 0;
  if (is_timed && now_ns() - found->second.asked_ns > kSlowAnswerMs * kNsPerMs) note_slow();
  if (answer->more && answer->clients.empty() && answer->groups.empty() && answer->totals.empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a part of an answer with nothing in it");
  }
  ServerAnswer& parts = found->second.parts;
  OPENMPS_RETURN_IF_ERROR(take_rows(&parts.clients, answer->clients, &answer->more));
  OPENMPS_RETURN_IF_ERROR(take_rows(&parts.groups, answer->groups, &answer->more));
  OPENMPS_RETURN_IF_ERROR(take_rows(&parts.totals, answer->totals, &answer->more));
  if (answer->more) {
    wire::Query rest;
    rest.query = head.query;
    rest.ticket = ticket;
    rest.session = !parts.groups.empty()   ? parts.groups.back().id
                   : !parts.totals.empty() ? parts.totals.back().number
                                           : parts.clients.back().id;
    send_query(rest);
  } else {
    answer->clients = std::move(parts.clients);
    answer->groups = std::move(parts.groups);
    answer->totals = std::move(parts.totals);
    finish_question(ticket, std::move(answer).value());
  }
  return Status();
}

Status ServerProcess::on_late_answer(uint32_t ticket) {
  if (owed_ == 0 || ticket > last_ticket_) {
    return Status(CUDA_ERROR_INVALID_VALUE, "an answer to no request");
  }
  --owed_;
  return Status();
}

void ServerProcess::finish_question(uint32_t ticket, ServerAnswer answer) {
  const auto found = questions_.find(ticket);
  if (found == questions_.end()) return;
  const Question question = std::move(found->second);
  questions_.erase(found);
  loop_.cancel(question.timer);
  question.done(std::move(answer));
}

void ServerProcess::on_connection_closed() {
  peer_.reset();
  // The server has closed its connection and ends. One that does not end is of no use.
  kill_after(kExitMs);
  finish_if_gone();
}

void ServerProcess::finish_if_gone() {
  // All that the server has sent is read before the connection ends.
  if (peer_ != nullptr || how_it_ended_.empty()) return;
  while (!questions_.empty()) finish_question(questions_.begin()->first, ServerAnswer{});
  const auto on_gone = callbacks_.on_gone;
  on_gone(how_it_ended_);
}

}  // namespace openmps::control
