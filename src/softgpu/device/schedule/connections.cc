// SPDX-License-Identifier: Apache-2.0
// Queues of items that have not started. See connections.h.
#include "softgpu/device/schedule/connections.h"

#include <algorithm>

namespace openmps::softgpu {

uint32_t Connections::choose() {
  const auto idle = [](const auto& queue) { return queue.empty(); };
  const auto free = std::find_if(queues_.begin(), queues_.end(), idle);
  if (free != queues_.end()) return static_cast<uint32_t>(free - queues_.begin());
  return next_++ % static_cast<uint32_t>(queues_.size());
}

void Connections::add(const OperationPtr& item, StreamItems& stream) {
  if (queues_.empty()) return;
  if (stream.unstarted++ == 0) stream.connection = choose();
  item->connection = static_cast<int32_t>(stream.connection);
  queues_[stream.connection].push_back(item);
}

bool Connections::is_first(const Operation& item) const {
  return item.connection < 0 || queues_[item.connection].front().get() == &item;
}

OperationPtr Connections::remove(Operation& item) {
  if (item.connection < 0) return nullptr;
  std::deque<OperationPtr>& queue = queues_[item.connection];
  item.connection = -1;
  --item.items->unstarted;
  queue.pop_front();
  return queue.empty() ? nullptr : queue.front();
}

}  // namespace openmps::softgpu
