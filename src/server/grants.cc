// SPDX-License-Identifier: Apache-2.0
// See grants.h.
#include "server/grants.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "server/answers.h"
#include "wire/message.h"

namespace openmps::server {

void Grants::grant(Session& session) {
  session.grant = make_grant(session.admit);
  assign_reservation(session);
  const std::string_view name = field_text(session.admit.group);
  if (name.empty()) return;
  Group& group = groups_.get(name);
  put_in_force(session.admit.group_limits, group);
  ++group.members;
  session.grant.group = group.number;
  give_limits(group, make_grant(session.admit), &session.grant);
}

void Grants::on_session_erased(const wire::Grant& grant) {
  groups_.leave(grant.group);
  const Reservation* reservation = reservations_.find(grant.reservation);
  if (reservation == nullptr || !reservation->is_static) return;
  const bool is_used = std::ranges::any_of(sessions_.all(), [&grant](const auto& entry) {
    return entry.second->grant.reservation == grant.reservation;
  });
  if (!is_used) release(grant.reservation);
}

void Grants::on_client_gone(uint32_t id, uint32_t pid) {
  for (const uint32_t number : reservations_.numbers_of_session(id)) release(number);
  const bool is_there = std::ranges::any_of(
      sessions_.all(), [pid](const auto& entry) { return entry.second->admit.pid == pid; });
  if (is_there) return;
  for (const uint32_t number : reservations_.numbers_of(pid)) release(number);
}

Grants::Outcome Grants::change(const wire::Query& query) {
  if (query.session == 0 && query.id == 0) return change_group(query);
  const auto devices = static_cast<uint32_t>(workers_.devices().size());
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  for (const auto& [id, session] : sessions_.all()) {
    if (!is_meant(query, *session) || session->state == SessionState::kEnding) continue;
    result = apply(query.change, devices, &session->grant);
    if (result != CUDA_SUCCESS) break;
    tell_session(*session);
    log_.write("What client " + session->name() + " may have has been changed");
  }
  return {result};
}

void Grants::tell_session(const Session& session) {
  wire::ChangeSession changed;
  changed.session = session.id;
  changed.grant = session.grant;
  if (session.worker != nullptr) session.worker->process->send(wire::message_bytes(changed));
}

// ---- Groups -------------------------------------------------------------------------------------

Grants::Outcome Grants::change_group(const wire::Query& query) {
  const std::string_view name = field_text(query.change.name);
  // A group made from cgroups exists from its first member on, any other from its first limit on.
  const bool may_be_made = !name.empty() && name.find(':') == std::string_view::npos;
  if (!may_be_made && groups_.find(name) == nullptr) return {CUDA_ERROR_INVALID_VALUE};
  Group& group = groups_.get(name);
  const wire::ClientLimits before = group.limits;
  const auto devices = static_cast<uint32_t>(workers_.devices().size());
  const CUresult result = apply(query.change, devices, &group.limits);
  tell_group(group, before);
  const Outcome outcome{result, group.members};
  groups_.forget_unused(group.number);
  return outcome;
}

void Grants::set_group(const wire::SetGroup& message) {
  const std::string_view name = field_text(message.group);
  if (message.is_permanent != 0) groups_.get(name);
  std::vector<uint32_t> numbers;
  for (const auto& [number, group] : groups_.all()) {
    if (Groups::is_of(group, name)) numbers.push_back(number);
  }
  for (const uint32_t number : numbers) {
    Group& group = *groups_.find(number);
    group.is_permanent = message.is_permanent != 0;
    put_in_force(message.limits, group);
    groups_.forget_unused(number);
  }
}

void Grants::put_in_force(const wire::ClientLimits& configured, Group& group) {
  const wire::ClientLimits before = group.limits;
  wire::put_changes_in_force(configured, &group.configured, &group.limits);
  tell_group(group, before);
}

void Grants::tell_group(const Group& group, const wire::ClientLimits& before) {
  if (group.limits == before) return;
  log_.write("What group " + printable(group.name) + " may have has been changed");
  wire::ChangeGroup changed;
  changed.group = group.number;
  changed.limits = group.limits;
  workers_.tell_all(wire::message_bytes(changed));
  if (group.limits.client_priority == before.client_priority &&
      group.limits.work_time_s == before.work_time_s) {
    return;
  }
  for (const auto& [id, session] : sessions_.all()) {
    if (session->grant.group != group.number) continue;
    give_limits(group, make_grant(session->admit), &session->grant);
    if (session->state != SessionState::kEnding) tell_session(*session);
  }
}

// ---- Reservations and static partitions ---------------------------------------------------------

std::optional<Grants::Outcome> Grants::reserve(const wire::Query& query) {
  const wire::Change& change = query.change;
  const Reservation* existing = reservations_.find(query);
  if (change.sms == 0) {
    if (existing == nullptr) return Outcome{CUDA_ERROR_INVALID_VALUE};
    release(existing->wish.number);
    return Outcome{};
  }
  if (existing != nullptr) return Outcome{CUDA_ERROR_ALREADY_ACQUIRED};
  const bool is_of_client = query.session != 0 || query.id != 0;
  const bool has_client = std::ranges::any_of(sessions_.all(), [&query](const auto& entry) {
    return is_meant(query, *entry.second) && entry.second->state != SessionState::kEnding;
  });
  if (is_of_client && !has_client) return Outcome{CUDA_ERROR_INVALID_VALUE};
  if (change.device >= workers_.devices().size()) return Outcome{CUDA_ERROR_INVALID_DEVICE};
  // Who has SMs of its own is in the common domain (Server::domain_of()).
  const Worker* const worker = Workers::serving(workers_.common());
  if (worker == nullptr) return Outcome{CUDA_ERROR_MPS_SERVER_NOT_READY};
  const Result<Reservation*> made = reservations_.add(query);
  if (!made.ok()) return Outcome{made.status().code()};
  worker->process->send(wire::message_bytes((*made)->wish));
  return std::nullopt;
}

// Workers that are being replaced keep what they have, without what is reserved from now on.
std::optional<Grants::Answered> Grants::on_reserved(const wire::Reserved& reserved) {
  Reservation* reservation = reservations_.find(reserved.number);
  if (reservation == nullptr) return std::nullopt;
  const Answered answered{std::exchange(reservation->ticket, 0),
                          {static_cast<CUresult>(reserved.result), reserved.sms}};
  if (reserved.result == CUDA_SUCCESS) {
    const std::string whose = reservation->is_static  ? "the clients of a static partition"
                              : reservation->pid != 0 ? std::to_string(reservation->pid)
                              : reservation->session != 0
                                  ? format_text("id:%u", reservation->session)
                                  : printable(reservation->program);
    log_.write(format_text("%u SMs of device %u are reserved for %s", reserved.sms,
                           reservation->wish.device, whose.c_str()));
    assign_reservations();
  } else {
    reservations_.erase(reserved.number);
  }
  return answered.ticket != 0 ? std::optional(answered) : std::nullopt;
}

void Grants::release(uint32_t number) {
  reservations_.erase(number);
  wire::Reserve no_longer;
  no_longer.number = number;
  workers_.tell_all(wire::message_bytes(no_longer));
  assign_reservations();
}

uint32_t Grants::reservation_for(const wire::Admit& admit, uint32_t session) const {
  return reservations_.number_for({admit.pid, session, field_text(admit.hello.command)});
}

void Grants::assign_reservation(Session& session) const {
  session.grant.reservation =
      session.domain->is_common() ? reservation_for(session.admit, session.id) : 0;
}

void Grants::assign_reservations() {
  for (const auto& [id, session] : sessions_.all()) {
    if (session->admit.partition.sms != 0) continue;
    const uint32_t before = session->grant.reservation;
    assign_reservation(*session);
    if (session->grant.reservation == before) continue;
    if (session->state != SessionState::kEnding) tell_session(*session);
  }
}

Status Grants::use_partition(Session& session) {
  const wire::StaticPartition& partition = session.admit.partition;
  if (partition.sms == 0) return Status();
  const Reservation* reservation = reservations_.find(partition);
  if (reservation == nullptr) {
    const Result<Reservation*> made = reservations_.add(partition);
    if (!made.ok()) return made.status();
    reservation = *made;
    session.worker->process->send(wire::message_bytes(reservation->wish));
  }
  session.grant.reservation = reservation->wish.number;
  return Status();
}

void Grants::tell_reservations(const Worker& worker) const {
  for (const Reservation& reservation : reservations_.all()) {
    worker.process->send(wire::message_bytes(reservation.wish));
  }
}

}  // namespace openmps::server
