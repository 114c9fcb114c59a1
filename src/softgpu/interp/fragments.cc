// SPDX-License-Identifier: Apache-2.0
// See fragments.h.
#include "softgpu/interp/fragments.h"

#include <algorithm>

namespace openmps::softgpu {

Record* open_record(WarpState* warp, const Op* meet) {
  if (!meet) return warp->record;
  if (warp->record && warp->record->meet == meet && warp->record->frame == warp->frame) {
    return warp->record;
  }
  if (warp->free_records.empty()) {
    warp->records.push_back(std::make_unique<Record>());
    warp->free_records.push_back(warp->records.back().get());
  }
  Record* record = warp->free_records.back();
  warp->free_records.pop_back();
  *record = {warp->record, warp->frame, meet, warp->active, 0};
  warp->record = record;
  return record;
}

void leave_record(WarpState* warp, Record* record, Record* until, uint32_t lanes) {
  while (record && record != until) {
    Record* parent = record->parent;
    record->expected &= ~lanes;
    if (record->expected == record->arrived) {
      if (record->arrived) {
        Fragment fragment;
        fragment.frame = record->frame;
        fragment.record = parent;
        fragment.pc = record->meet;  // the parent may meet at the same place
        fragment.mask = record->arrived;
        warp->fragments.insert(warp->fragments.begin(), fragment);
      }
      warp->free_records.push_back(record);
    }
    record = parent;
  }
}

void release_parked(WarpState* warp) {
  std::vector<Record*> seen;
  auto walk = [&](Record* record) {
    for (; record; record = record->parent) {
      if (record->arrived && std::find(seen.begin(), seen.end(), record) == seen.end()) {
        seen.push_back(record);
      }
    }
  };
  if (warp->active) walk(warp->record);
  for (const Fragment& fragment : warp->fragments) walk(fragment.record);
  for (Record* record : seen) {
    Fragment fragment;
    fragment.frame = record->frame;
    fragment.record = record->parent;
    fragment.pc = record->meet;
    fragment.mask = record->arrived;
    record->expected &= ~record->arrived;
    record->arrived = 0;
    warp->fragments.push_back(fragment);
  }
}

static const Op* resume(WarpState* warp, const Fragment& fragment) {
  warp->active = fragment.mask;
  warp->frame = fragment.frame;
  warp->record = fragment.record;
  warp->regs = fragment.frame->regs;
  warp->pc = fragment.pc;
  update_mask(warp);
  return fragment.pc;
}

const Op* switch_fragment(WarpState* warp) {
  using State = Fragment::State;
  warp->active = 0;
  // Almost always at a barrier: one fragment of all lanes, no lane waits at a join.
  if (warp->fragments.size() == 1 && !warp->fragments[0].record &&
      warp->fragments[0].state == State::kBarrier) {
    return nullptr;
  }
  // Or back from there.
  if (warp->fragments.size() == 1 && warp->fragments[0].state == State::kReady) {
    const Fragment fragment = warp->fragments[0];
    warp->fragments.clear();
    return resume(warp, fragment);
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    bool at_barrier = false;
    size_t chosen = warp->fragments.size(), waiting = chosen;
    for (size_t i = 0; i < warp->fragments.size() && chosen == warp->fragments.size(); ++i) {
      const State state = warp->fragments[i].state;
      if (state == State::kReady) chosen = i;
      if (state == State::kBarrier || state == State::kCluster) at_barrier = true;
      if (state == State::kSync && waiting == warp->fragments.size()) waiting = i;
    }
    if (chosen == warp->fragments.size() && attempt == 0) {
      release_parked(warp);
      continue;
    }
    // Lanes named by a *.sync that can't come any more: their partners go on without them.
    if (chosen == warp->fragments.size() && !at_barrier && waiting < chosen) {
      chosen = waiting;
      warp->force_sync = true;
    }
    if (chosen == warp->fragments.size()) return nullptr;
    const Fragment fragment = warp->fragments[chosen];
    warp->fragments.erase(warp->fragments.begin() + static_cast<ptrdiff_t>(chosen));
    return resume(warp, fragment);
  }
  return nullptr;
}

const Op* give_way(WarpState* warp, const Op* pc) {
  warp->spins = 0;
  release_parked(warp);
  if (warp->fragments.empty()) {
    warp->pc = pc;
    return nullptr;
  }
  Fragment fragment;
  fragment.frame = warp->frame;
  fragment.record = warp->record;
  fragment.pc = pc;
  fragment.mask = warp->active;
  warp->fragments.push_back(fragment);
  warp->active = 0;
  return nullptr;
}

}  // namespace openmps::softgpu
