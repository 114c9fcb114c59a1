// SPDX-License-Identifier: Apache-2.0
// openmps-server: which fault domain a client belongs to, and clients that go to another one
// (docs/decisions/0045).
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "server/answers.h"
#include "server/server.h"
#include "wire/kept.h"

namespace openmps::server {
namespace {

std::string program_of(const wire::Admit& admit) {
  return std::string(field_text(admit.hello.command));
}

}  // namespace

const Session* Server::other_member(const wire::Admit& admit, const Session* own) const {
  const std::string_view group = field_text(admit.group);
  if (group.empty()) return nullptr;
  const auto found = std::ranges::find_if(sessions_.all(), [&](const auto& entry) {
    const Session& session = *entry.second;
    return &session != own && session.state != SessionState::kEnding &&
           field_text(session.admit.group) == group;
  });
  return found == sessions_.all().end() ? nullptr : found->second.get();
}

bool Server::has_own_sms(const wire::Admit& admit, const Session* own) const {
  return admit.partition.sms != 0 ||
         grants_.reservation_for(admit, own == nullptr ? 0 : own->id) != 0;
}

Domain& Server::domain_of(const wire::Admit& admit, const Session* own) {
  // SMs are reserved in one worker, and so is the memory of a group counted.
  if (has_own_sms(admit, own)) return workers_.common();
  if (const Session* const member = other_member(admit, own)) return *member->domain;
  std::string name(field_text(admit.hello.domain));
  if (options_.has_quarantine && quarantine_.holds(program_of(admit), now_ns())) {
    name = kQuarantineDomain;
  }
  std::optional<uint32_t> gpu;
  if (name.empty() && may_be_of_gpu(admit)) gpu = own ? own->only_gpu : only_gpu_of(admit);
  if (gpu && (joined_devices_ >> *gpu & 1) == 0) return workers_.domain_of_device(*gpu);
  if (!wire::is_domain_name(name)) return workers_.common();
  Domain* const domain = workers_.domain(name);
  if (domain != nullptr) return *domain;
  log_.write(format_text("There are %zu domains: {PID: %u} gets into the common one instead of %s",
                         kMostDomains, admit.pid, name.c_str()));
  return workers_.common();
}

bool Server::may_change_domain(const Session& session) const {
  return !has_own_sms(session.admit, &session) && other_member(session.admit, &session) == nullptr;
}

// A group's memory is counted in one worker, and its members may see different GPUs.
bool Server::may_be_of_gpu(const wire::Admit& admit) const {
  return uses_gpu_domains_ && field_text(admit.group).empty() &&
         field_text(admit.hello.domain).empty();
}

std::optional<uint32_t> Server::only_gpu_of(const wire::Admit& admit) const {
  return sole_visible_device(workers_.devices(), field_text(admit.hello.visible_devices));
}

void Server::set_domain(Session& session, Domain& domain) {
  session.domain = &domain;
  grants_.assign_reservation(session);
}

void Server::assign_waiting() {
  for (Waiting& next : waiting_) {
    if (!next.domain->is_common()) continue;
    next.domain = &domain_of(next.admit, nullptr);
    if (!next.domain->is_common()) workers_.start(*next.domain);
  }
}

void Server::open_waiting(Domain& domain) {
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& next : waiting) {
    if (next.domain == &domain && Workers::serving(domain) != nullptr) {
      open_session(std::move(next));
    } else {
      waiting_.push_back(std::move(next));
    }
  }
}

void Server::move(const wire::Query& query) {
  const std::string name(field_text(query.change.name));
  Domain* const domain = wire::is_domain_name(name) ? workers_.domain(name) : nullptr;
  if (domain == nullptr) {
    return answer(query.query, query.ticket, {CUDA_ERROR_MPS_MAX_CLIENTS_REACHED});
  }
  MoveQuery wanted{.kind = query.query, .ticket = query.ticket};
  bool is_there = false;
  for (const auto& [id, session] : sessions_.all()) {
    if (!is_meant(query, *session) || session->state == SessionState::kEnding) continue;
    is_there = true;
    if (!may_change_domain(*session)) {
      wanted.result = CUDA_ERROR_NOT_PERMITTED;
    } else if (session->domain == domain) {
      ++wanted.moved;
    } else if (session->state != SessionState::kActive || session->is_leaving ||
               !session->stays().empty()) {
      ++wanted.stayed;
    } else {
      log_.write("Client " + session->name() + " is to go to domain " + name +
                 ", as was asked for");
      fill_field(session->admit.hello.domain, name);
      set_domain(*session, *domain);
      wanted.sessions.insert(id);
    }
  }
  if (!is_there) wanted.result = CUDA_ERROR_INVALID_VALUE;
  moves_.push_back(std::move(wanted));
  start_awaited_workers();
  send_home();
  answer_moves();
  look_at_domains();
}

void Server::dissolve(Domain& domain) {
  if (domain.device && std::exchange(uses_gpu_domains_, false)) {
    log_.write("GPUs have no domains of their own from now on (OPENMPS_GPU_DOMAINS)");
  }
  for (Waiting& waiting : waiting_) {
    if (waiting.domain == &domain) waiting.domain = &workers_.common();
  }
  std::vector<uint32_t> staying;
  for (const auto& [id, session] : sessions_.all()) {
    if (session->domain != &domain) continue;
    if (session->worker == nullptr) {
      set_domain(*session, workers_.common());
    } else if (session->worker->domain != &domain) {
      set_domain(*session, *session->worker->domain);
      staying.push_back(id);
    }
  }
  for (const uint32_t id : staying) note_left(id, &MoveQuery::stayed);
  on_no_spare(domain);
  workers_.start(workers_.common());
  open_waiting(workers_.common());
  adopt_waiting();
}

// ---- Quarantine ---------------------------------------------------------------------------------

void Server::note_guilty(const Session& session) {
  if (!options_.has_quarantine) return;
  quarantine_.note_guilty(program_of(session.admit), now_ns());
  history_.note(make_event(wire::EventKind::kQuarantined, &session,
                           "its next clients are kept apart, since a fault was its own"));
  log_.write(
      format_text("The program's next clients are kept apart in domain %s for %llu minutes "
                  "(OPENMPS_QUARANTINE)",
                  kQuarantineDomain,
                  static_cast<unsigned long long>(Quarantine::kGuiltyNs / (60'000 * kNsPerMs))));
}

void Server::note_suspect(Session& session) {
  if (!options_.has_quarantine) return;
  if (!quarantine_.note_suspect(program_of(session.admit), now_ns())) return;
  Domain* const domain = workers_.domain(kQuarantineDomain);
  if (domain == nullptr || !may_change_domain(session) || session.domain == domain) return;
  log_.write("Client " + session.name() + " goes on apart in domain " + domain->name +
             ", since it is suspected again");
  history_.note(make_event(wire::EventKind::kQuarantined, &session,
                           "it is kept apart, since it is suspected again"));
  set_domain(session, *domain);
}

// Who has been apart for long enough comes back.
void Server::look_at_quarantine() {
  quarantine_timer_ = 0;
  if (workers_.stopping()) return;
  bring_home([](const Session& session) { return session.domain->name == kQuarantineDomain; },
             "it has been apart for long enough");
}

// ---- GPUs that are used together ----------------------------------------------------------------

// SMs are kept from, and shared with, work of one worker only.
void Server::look_at_joined_devices() {
  const uint32_t joined = grants_.reserved_devices() | busy_devices_.devices(now_ns());
  unsettled_devices_ |= std::exchange(joined_devices_, joined) ^ joined;
  if (unsettled_devices_ == 0) return;
  const bool all = bring_home(
      [&](const Session& session) {
        const auto device = home_gpu(session);
        return device && (unsettled_devices_ >> *device & 1) != 0;
      },
      "who uses its GPU, or has SMs of it, has changed");
  if (all) unsettled_devices_ = 0;
}

void Server::watch_devices() {
  if (busy_timer_ != 0 || !uses_gpu_domains_ || workers_.devices().size() <= 1) return;
  bool has_home = false;
  bool has_other = busy_devices_.devices(now_ns()) != 0;
  for (const auto& [id, session] : sessions_.all()) {
    (home_gpu(*session) ? has_home : has_other) = true;
  }
  if (!has_home || !has_other) return;
  busy_timer_ = loop_.call_after(kBusyLookMs, [this] { look_at_busy_devices(); });
}

void Server::look_at_busy_devices() {
  busy_timer_ = 0;
  if (workers_.stopping()) return;
  std::map<uint32_t, BusyDevices::Work> sessions;
  for (const auto& [id, session] : sessions_.all()) {
    const bool is_there = session->worker != nullptr && session->worker->domain->is_common();
    if (!is_there || home_gpu(*session)) continue;
    const wire::Usage usage = session->usage();
    BusyDevices::Work& work = sessions[id];
    for (uint32_t i = 0; i < wire::kMaxDevices; ++i) work[i] = usage.use(i, wire::DeviceUse::kNs);
  }
  busy_devices_.look(std::move(sessions), now_ns());
  look_at_joined_devices();
  watch_devices();
}

bool Server::bring_home(const std::function<bool(const Session&)>& is_concerned,
                        const char* reason) {
  bool all = true;
  for (const auto& [id, session] : sessions_.all()) {
    if (session->state == SessionState::kEnding || !is_concerned(*session)) continue;
    Domain& home = domain_of(session->admit, session.get());
    if (&home == session->domain) continue;
    if (session->state != SessionState::kActive || session->is_leaving) {
      all = false;
      continue;
    }
    log_.write("Client " + session->name() + " goes to domain " + home.name + ": " + reason);
    set_domain(*session, home);
  }
  start_awaited_workers();
  send_home();
  look_at_domains();
  return all;
}

// ---- The end of a domain ------------------------------------------------------------------------

void Server::look_at_domains() {
  for (const auto& [name, domain] : workers_.domains()) {
    if (name == kQuarantineDomain && sessions_.clients(*domain) != 0 && quarantine_timer_ == 0) {
      quarantine_timer_ = loop_.call_after(kQuarantineLookMs, [this] { look_at_quarantine(); });
    }
    if (domain->is_common() || domain->unused_timer != 0 || wants_worker(*domain)) continue;
    domain->unused_timer =
        loop_.call_after(kDomainUnusedMs, [this, &used = *domain] { end_unused_domain(used); });
  }
}

void Server::end_unused_domain(Domain& domain) {
  domain.unused_timer = 0;
  if (workers_.stopping()) return;
  if (!wants_worker(domain)) {
    workers_.end_spare(domain);
    if (Workers::serving(domain) != nullptr) {
      workers_.retire_serving(domain, Workers::Retires::kWell);
    }
    const bool has_session = std::ranges::any_of(
        sessions_.all(), [&](const auto& entry) { return entry.second->domain == &domain; });
    if (!has_session) workers_.forget_if_unused(domain);
  }
  look_at_domains();
}

}  // namespace openmps::server
