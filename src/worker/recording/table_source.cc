// SPDX-License-Identifier: Apache-2.0
// See table_source.h.
#include "worker/recording/table_source.h"

namespace openmps::worker {
namespace {

// How many rounds of flush() work waits for its call, and how many pieces. That of sessions which
// are not recorded waits in vain.
constexpr uint32_t kRounds = 2;
constexpr size_t kMostEarly = 1u << 16;

}  // namespace

TableSource::~TableSource() {
  if (listener_.load() != nullptr) stop();
}

Status TableSource::start(Listener& listener) {
  calls_ = std::make_unique<RecordedCalls>();
  listener_.store(&listener);
  const cupti::ActivitySink sink{.take = take, .self = this};
  const char* why = nullptr;
  const CUresult started = table_.start(&sink, &why);
  if (started == CUDA_SUCCESS) return Status();
  listener_.store(nullptr);
  calls_.reset();
  return Status(started, why != nullptr ? why : "CUDA error " + std::to_string(started));
}

void TableSource::stop() {
  table_.stop();
  listener_.store(nullptr);
  calls_.reset();
  const MutexLock lock(mutex_);
  early_.clear();
}

void TableSource::flush(Flush) {
  table_.flush();
  std::deque<Early> early;
  {
    const MutexLock lock(mutex_);
    ++round_;
    std::swap(early, early_);
  }
  for (Early& one : early) {
    GivenWork work;
    if (calls_->find(one.activity.correlation, &work)) {
      tell(one.activity, one.name.c_str());
      continue;
    }
    const MutexLock lock(mutex_);
    if (round_ - one.round <= kRounds) early_.push_back(std::move(one));
  }
}

void TableSource::take(void* self, const cupti::Activity* activity, const char* name) {
  auto* const source = static_cast<TableSource*>(self);
  if (activity->kind != cupti::ActivityKind::kCall) {
    source->tell(*activity, name);
  } else if (current_work.session != 0) {
    source->calls_->note(activity->correlation);
  }
}

void TableSource::tell(const cupti::Activity& activity, const char* name) {
  Ended ended{{}, activity, name};
  if (calls_->find(activity.correlation, &ended.work)) {
    return listener_.load()->take({&ended, 1});
  }
  const MutexLock lock(mutex_);
  if (early_.size() < kMostEarly) {
    early_.push_back({activity, name == nullptr ? "" : name, round_});
  }
}

}  // namespace openmps::worker
