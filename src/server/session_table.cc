// SPDX-License-Identifier: Apache-2.0
// The sessions of one server, and the host files behind them.
#include "server/session_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <string>

#include "base/futex.h"
#include "base/text.h"
#include "server/worker_state.h"
#include "wire/journal.h"
#include "wire/kept.h"

namespace openmps::server {

std::string Session::name() const {
  return format_text("{PID: %u, Context ID: %u}", admit.pid, id);
}

wire::Usage Session::usage() const {
  if (worker == nullptr) return used;
  wire::Usage all = worker->usage.read(window, id);
  all.add_counters(used);
  return all;
}

void Session::leave_worker() {
  if (worker == nullptr) return;
  used.add_counters(worker->usage.read(window, id));
  worker = nullptr;
}

void Session::end_with(CUresult status) const {
  wire::ChannelHeader& shared = header();
  uint32_t none = CUDA_SUCCESS;
  shared.status.compare_exchange_strong(none, status);
  shared.wake_epoch.fetch_add(1);
  // `waiters` lies in memory that the client writes: waking without need costs one system call.
  futex_wake(&shared.wake_epoch, INT_MAX);
}

std::string Session::stays() const {
  if (!journal.valid()) return "OPENMPS_TAKEOVER is off";
  const auto& shared = *static_cast<const wire::JournalHeader*>(journal_page.address());
  return printable(field_text(shared.stays));
}

Result<Session::Left> Session::look_at_left() const {
  const Result<Mapping> mapping =
      map_shared(host_file.get(), 0, wire::kChannelBytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  const wire::ChannelView channel(mapping->address());
  return Left{.is_unfinished = wire::JournalView(journal_page.address()).any_unfinished(channel),
              .is_in_command = channel.executor().opcode.load(std::memory_order_relaxed) != 0,
              .position = channel.ring_control().head.load(std::memory_order_relaxed),
              .has_commands = channel.ring_control().head.load(std::memory_order_relaxed) !=
                              channel.ring_control().tail.load(std::memory_order_relaxed)};
}

bool Session::seems_idle() const {
  if (header().waiters.load(std::memory_order_relaxed) != 0) return false;
  const Result<Left> left = look_at_left();
  return left.ok() && !left->is_unfinished && !left->has_commands;
}

void Session::go_on(const std::string& culprit) const {
  wire::ChannelHeader& shared = header();
  fill_field(shared.culprit, culprit);
  shared.generation.fetch_add(1, std::memory_order_release);
  shared.wake_epoch.fetch_add(1);
  futex_wake(&shared.wake_epoch, INT_MAX);
}

namespace {

// A journal without entries.
Status make_journal(Session& session) {
  Result<UniqueFd> file = create_shared_file("openmps-journal", wire::kJournalBytes);
  if (!file.ok()) return file.status();
  Result<Mapping> page = map_shared(file->get(), 0, wire::kJournalStart, MapAccess::kReadWrite);
  if (!page.ok()) return page.status();
  auto& header = *static_cast<wire::JournalHeader*>(page->address());
  header.magic = wire::kJournalMagic;
  header.version = wire::kProtocolVersion;
  header.extents[0].begin = header.extents[0].end = wire::kJournalStart;
  madvise(page->address(), page->bytes(), MADV_DONTFORK);
  session.journal = std::move(file).value();
  session.journal_page = std::move(page).value();
  return Status();
}

}  // namespace

Status SessionTable::has_room_for(const wire::Admit& admit) const {
  const auto free = std::ranges::count_if(windows_, &Window::is_free);
  if (free == 0) {
    return Status(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                  "the server has " + std::to_string(wire::kMaxWindows) + " clients, its maximum");
  }
  const std::string_view group = field_text(admit.group);
  if (group.empty() || free > kKeptWindows) return Status();
  const auto members = std::ranges::count_if(sessions_, [&group](const auto& entry) {
    return field_text(entry.second->admit.group) == group;
  });
  if (members < kFewClients) return Status();
  return Status(
      CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
      format_text("the group has %zu clients, and the server's last %u of %u are for "
                  "groups with fewer than %u",
                  static_cast<size_t>(members), kKeptWindows, wire::kMaxWindows, kFewClients));
}

Result<Session*> SessionTable::create(const wire::Admit& admit, Domain& domain) {
  OPENMPS_RETURN_IF_ERROR(has_room_for(admit));
  const auto free = std::ranges::find_if(windows_, &Window::is_free);
  const auto window = static_cast<uint32_t>(free - windows_.begin());
  auto session = std::make_unique<Session>();
  do {
    ++last_id_;
  } while (last_id_ == 0 || sessions_.contains(last_id_));
  session->id = last_id_;
  session->window = window;
  session->domain = &domain;
  session->admit = admit;
  Result<UniqueFd> file = create_shared_file("openmps-session", wire::kHostBytes);
  if (!file.ok()) return file.status();
  session->host_file = std::move(file).value();
  Result<Mapping> page = map_shared(session->host_file.get(), wire::kHeaderOffset,
                                    wire::kRingControlOffset, MapAccess::kReadWrite);
  if (!page.ok()) return page.status();
  session->header_page = std::move(page).value();
  // The process that closes clients' descriptors is a child of the server; it needs no copy.
  madvise(session->header_page.address(), session->header_page.bytes(), MADV_DONTFORK);
  // The file is new, so everything else in it is zero.
  wire::ChannelHeader& header = session->header();
  header.magic = wire::kMagic;
  header.version = wire::kProtocolVersion;
  header.window_base = wire::window_base(window);
  header.session = session->id;
  if (wire::takes_over()) OPENMPS_RETURN_IF_ERROR(make_journal(*session));
  Session* made = session.get();
  sessions_[made->id] = std::move(session);
  free->has_session = true;
  return made;
}

Session* SessionTable::find(uint32_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void SessionTable::erase(uint32_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  windows_[found->second->window].has_session = false;
  sessions_.erase(found);
}

void SessionTable::lend_window(const Session& session) {
  windows_[session.window].workers.insert(session.worker);
}

bool SessionTable::return_window(uint32_t window, const Worker& worker) {
  return window < windows_.size() && windows_[window].workers.erase(&worker) != 0;
}

void SessionTable::return_windows(const Worker& worker) {
  for (Window& window : windows_) window.workers.erase(&worker);
}

uint32_t SessionTable::kept_windows(const Worker& worker) const {
  return static_cast<uint32_t>(
      std::count_if(windows_.begin(), windows_.end(), [&worker](const Window& window) {
        return window.workers.contains(&worker) && !window.has_session;
      }));
}

uint32_t SessionTable::places() const {
  uint32_t places = 0;
  for (const auto& [id, session] : sessions_) {
    if (!session->journal.valid()) continue;
    const auto& journal = *static_cast<const wire::JournalHeader*>(session->journal_page.address());
    places |= journal.places.load(std::memory_order_relaxed);
  }
  return places;
}

uint32_t SessionTable::clients() const {
  uint32_t count = 0;
  for (const auto& [id, session] : sessions_) {
    count += session->state != SessionState::kEnding ? 1 : 0;
  }
  return count;
}

uint32_t SessionTable::clients(const Domain& domain) const {
  return static_cast<uint32_t>(std::ranges::count_if(sessions_, [&domain](const auto& entry) {
    return entry.second->domain == &domain && entry.second->state != SessionState::kEnding;
  }));
}

bool SessionTable::has_clients(const Worker& worker) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&worker](const auto& entry) {
    return entry.second->worker == &worker && entry.second->state != SessionState::kEnding;
  });
}

bool SessionTable::has_tainting_session(const Worker& worker) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&worker](const auto& entry) {
    return entry.second->worker == &worker &&
           entry.second->header().tainted.load(std::memory_order_acquire) != 0;
  });
}

std::vector<uint32_t> SessionTable::ids_of(const Worker& worker) const {
  std::vector<uint32_t> ids;
  for (const auto& [id, session] : sessions_) {
    if (session->worker == &worker) ids.push_back(id);
  }
  return ids;
}

}  // namespace openmps::server
