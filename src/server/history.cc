// SPDX-License-Identifier: Apache-2.0
// See history.h.
#include "server/history.h"

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "server/domain.h"
#include "wire/message.h"

namespace openmps::server {

wire::Event make_event(wire::EventKind kind, const Session* session, std::string_view text,
                       CUresult result) {
  wire::Event event;
  event.event = kind;
  event.result = result;
  event.at_ns = wall_clock_ns();
  fill_field(event.text, printable(text));
  if (session == nullptr) return event;
  event.pid = session->admit.pid;
  event.id = session->id;
  fill_field(event.command, printable(field_text(session->admit.hello.command)));
  fill_field(event.group, field_text(session->admit.group));
  fill_field(event.domain, session->domain->name);
  return event;
}

uint32_t History::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      groups_, [name](const auto& entry) { return entry.second.name == name; });
  return found == groups_.end() ? 0 : found->first;
}

uint32_t History::on_opened(std::string_view group) {
  uint32_t number = find(group);
  if (number == 0) {
    if (groups_.size() >= kMostGroupTotals) forget_oldest();
    number = ++last_;
    groups_[number].name = group;
  }
  Group& one = groups_[number];
  ++one.open;
  ++one.sessions;
  return number;
}

void History::on_closed(uint32_t number, const wire::Usage& used) {
  Group& group = groups_.at(number);
  --group.open;
  group.last_end = ++ends_;
  group.ended.add_counters(used);
  tell(number, group);
}

// Its figures remain in those of the clients without a group, so that the sums stay right.
void History::forget_oldest() {
  auto oldest = groups_.end();
  for (auto entry = groups_.begin(); entry != groups_.end(); ++entry) {
    if (entry->second.open != 0 || entry->second.name.empty()) continue;
    if (oldest == groups_.end() || entry->second.last_end < oldest->second.last_end) oldest = entry;
  }
  if (oldest == groups_.end()) return;
  const Group gone = std::move(oldest->second);
  const uint32_t number = oldest->first;
  groups_.erase(oldest);
  uint32_t rest = find("");
  if (rest == 0) rest = ++last_;
  Group& others = groups_[rest];
  others.sessions += gone.sessions;
  others.ended.add_counters(gone.ended);
  tell(number, {.name = gone.name});
  tell(rest, others);
}

void History::note(const wire::Event& event) const { tell_(wire::message_bytes(event)); }

void History::tell_all() const {
  for (const auto& [number, group] : groups_) tell(number, group);
}

wire::TotalsRow History::row_of(uint32_t number, const Group& group) {
  wire::TotalsRow row;
  row.number = number;
  row.open = group.open;
  row.sessions = group.sessions;
  fill_field(row.group, group.name);
  row.usage = group.ended;
  return row;
}

void History::tell(uint32_t number, const Group& group) const {
  wire::Totals totals;
  totals.row = row_of(number, group);
  tell_(wire::message_bytes(totals));
}

}  // namespace openmps::server
