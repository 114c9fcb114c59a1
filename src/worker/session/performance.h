// SPDX-License-Identifier: Apache-2.0
// What makes a worker faster, each of which OPENMPS_PERF can switch off. Each part of a session
// that a switch concerns is told of it when it is made.
#pragma once

namespace openmps::worker {

struct Performance {
  bool holds_waits = true;   // docs/decisions/0017
  bool budgets = true;       // docs/decisions/0018
  bool batches = true;       // docs/decisions/0020; they need budgets
  bool store = true;         // ImageStore::keep, docs/decisions/0022
  bool connections = true;   // docs/decisions/0023; they need budgets
  bool value_watch = true;   // docs/decisions/0017
  bool lingers = true;       // docs/decisions/0024
  bool spares_cores = true;  // docs/decisions/0024
  bool policy = true;        // docs/decisions/0025; it needs budgets
  bool rank_sms = true;      // docs/decisions/0028; it needs budgets
  bool few_sms = true;       // docs/decisions/0031; it needs budgets
  bool slots = true;         // docs/decisions/0033
};

}  // namespace openmps::worker
