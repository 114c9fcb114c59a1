// SPDX-License-Identifier: Apache-2.0
// See reservations.h.
#include "server/reservations.h"

#include <algorithm>

#include "base/text.h"

namespace openmps::server {

bool Reservation::is_of(const Client& client) const {
  if (is_static) return false;
  if (pid != 0) return pid == client.pid;
  return session != 0 ? session == client.session : program == program_name(client.command);
}

Result<Reservation*> Reservations::make() {
  if (all_.size() == kMost) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "there are too many reservations");
  }
  do {
    ++last_;
  } while (last_ == 0 || find(last_) != nullptr);
  Reservation& made = all_.emplace_back();
  made.wish.number = last_;
  return &made;
}

Result<Reservation*> Reservations::add(const wire::Query& query) {
  Result<Reservation*> place = make();
  if (!place.ok()) return place;
  Reservation& made = **place;
  made.wish.device = query.change.device;
  made.wish.sms = query.change.sms;
  made.wish.lends = query.change.lends != 0 ? 1 : 0;
  made.pid = query.session;
  made.session = query.id;
  made.program = field_text(query.change.name);
  made.ticket = query.ticket;
  return &made;
}

Result<Reservation*> Reservations::add(const wire::StaticPartition& partition) {
  Result<Reservation*> place = make();
  if (!place.ok()) return place;
  Reservation& made = **place;
  made.is_static = true;
  made.wish.device = partition.device;
  made.wish.sms = partition.sms;
  made.wish.lends = partition.lends != 0 ? 1 : 0;
  made.wish.most_sms = partition.most_sms;
  std::ranges::copy(partition.groups, made.wish.groups);
  return &made;
}

Reservation* Reservations::find(uint32_t number) {
  const auto found = std::ranges::find_if(
      all_, [number](const Reservation& one) { return one.wish.number == number; });
  return found == all_.end() ? nullptr : &*found;
}

Reservation* Reservations::find(const wire::StaticPartition& partition) {
  const auto found = std::ranges::find_if(all_, [&partition](const Reservation& one) {
    return one.is_static && one.wish.device == partition.device &&
           std::ranges::equal(one.wish.groups, partition.groups);
  });
  return found == all_.end() ? nullptr : &*found;
}

Reservation* Reservations::find(const wire::Query& query) {
  const std::string_view name = field_text(query.change.name);
  const auto found = std::ranges::find_if(all_, [&](const Reservation& one) {
    return !one.is_static && one.wish.device == query.change.device && one.pid == query.session &&
           one.session == query.id && (one.pid != 0 || one.session != 0 || one.program == name);
  });
  return found == all_.end() ? nullptr : &*found;
}

void Reservations::erase(uint32_t number) {
  std::erase_if(all_, [number](const Reservation& one) { return one.wish.number == number; });
}

std::vector<uint32_t> Reservations::numbers_of(uint32_t pid) const {
  std::vector<uint32_t> numbers;
  for (const Reservation& one : all_) {
    if (one.pid == pid && pid != 0) numbers.push_back(one.wish.number);
  }
  return numbers;
}

std::vector<uint32_t> Reservations::numbers_of_session(uint32_t session) const {
  std::vector<uint32_t> numbers;
  for (const Reservation& one : all_) {
    if (one.session == session && session != 0) numbers.push_back(one.wish.number);
  }
  return numbers;
}

uint32_t Reservations::devices() const {
  uint32_t devices = 0;
  for (const Reservation& one : all_) {
    if (one.ticket == 0) devices |= 1u << one.wish.device;
  }
  return devices;
}

uint32_t Reservations::number_for(const Reservation::Client& client) const {
  for (const Reservation& one : all_) {
    if (one.ticket == 0 && one.is_of(client)) return one.wish.number;
  }
  return 0;
}

}  // namespace openmps::server
