// SPDX-License-Identifier: Apache-2.0
// CUPTI's callback functions. Subscribing is accepted, and no callback is delivered (subscriber.h).
#include <array>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "cupti/activity.h"
#include "cupti/call.h"
#include "cupti/subscriber.h"

// The handle of the one subscriber.
struct CUpti_Subscriber_st {
  openmps::Mutex lock{openmps::LockRank::kCuptiRecords};
  bool present GUARDED_BY(lock) = false;
  std::array<bool, CUPTI_CB_DOMAIN_SIZE> domains GUARDED_BY(lock) = {};
  // Functions for which it is not as for their domain.
  std::map<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>, bool> others GUARDED_BY(lock);
};

namespace openmps::cupti {
namespace {

CUpti_Subscriber_st& subscriber() {
  static auto* const one = new CUpti_Subscriber_st;
  return *one;
}

bool is_domain(CUpti_CallbackDomain domain) {
  return domain > CUPTI_CB_DOMAIN_INVALID && domain < CUPTI_CB_DOMAIN_SIZE;
}

// change(subscriber), locked, if that handle is its.
template <typename Change>
CUptiResult with_subscriber(CUpti_SubscriberHandle handle, Change&& change) {
  CUpti_Subscriber_st& one = subscriber();
  const MutexLock guard(one.lock);
  if (handle != &one || !one.present) return CUPTI_ERROR_INVALID_PARAMETER;
  return change(one);
}

CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback) {
  if (handle == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CUpti_Subscriber_st& one = subscriber();
  const MutexLock guard(one.lock);
  if (one.present) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  one.present = true;
  one.domains = {};
  one.others.clear();
  *handle = &one;
  return CUPTI_SUCCESS;
}

void set_domain(CUpti_Subscriber_st& one, CUpti_CallbackDomain domain, bool on) REQUIRES(one.lock) {
  one.domains[domain] = on;
  std::erase_if(one.others, [&](const auto& other) { return other.first.first == domain; });
}

}  // namespace

void forget_subscriber() {
  CUpti_Subscriber_st& one = subscriber();
  const MutexLock guard(one.lock);
  one.present = false;
}

}  // namespace openmps::cupti

using namespace openmps::cupti;  // NOLINT: what follows is the C interface of these functions

#pragma GCC visibility push(default)
extern "C" {

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void*) {
  return call([&] { return subscribe(handle, callback); });
}
// Its parameters are about more than one subscriber.
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void*,
                              void*) {
  return call([&] { return subscribe(handle, callback); });
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  return call([&] {
    return with_subscriber(handle, [](CUpti_Subscriber_st& one) {
      one.lock.assert_held();
      one.present = false;
      return CUPTI_SUCCESS;
    });
  });
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId function) {
  return call([&] {
    return with_subscriber(handle, [&](CUpti_Subscriber_st& one) {
      one.lock.assert_held();
      if (!is_domain(domain)) return CUPTI_ERROR_INVALID_PARAMETER;
      one.others[{domain, function}] = enable != 0;
      return CUPTI_SUCCESS;
    });
  });
}
CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                              CUpti_CallbackDomain domain) {
  return call([&] {
    return with_subscriber(handle, [&](CUpti_Subscriber_st& one) {
      one.lock.assert_held();
      if (!is_domain(domain)) return CUPTI_ERROR_INVALID_PARAMETER;
      set_domain(one, domain, enable != 0);
      return CUPTI_SUCCESS;
    });
  });
}
CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle) {
  return call([&] {
    return with_subscriber(handle, [&](CUpti_Subscriber_st& one) {
      one.lock.assert_held();
      one.domains.fill(enable != 0);
      one.others.clear();
      return CUPTI_SUCCESS;
    });
  });
}
CUptiResult cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle handle,
                                  CUpti_CallbackDomain domain, CUpti_CallbackId function) {
  return call([&] {
    return with_subscriber(handle, [&](CUpti_Subscriber_st& one) {
      one.lock.assert_held();
      if (!is_domain(domain)) return CUPTI_ERROR_INVALID_PARAMETER;
      const auto found = one.others.find({domain, function});
      const bool on = found == one.others.end() ? one.domains[domain] : found->second;
      return give(uint32_t{on}, enable);
    });
  });
}

// None delivers callbacks.
CUptiResult cuptiSupportedDomains(size_t* count, CUpti_DomainTable* domains) {
  return call([&] {
    if (count == nullptr || domains == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    *count = 0;
    *domains = nullptr;
    return CUPTI_SUCCESS;
  });
}

// Of functions that have records.
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t function,
                                 const char** name) {
  return call([&] {
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return CUPTI_ERROR_INVALID_PARAMETER;
    switch (static_cast<CallKind>(function)) {
      case CallKind::kFill: return give("cuMemsetD8Async", name);
      case CallKind::kCopy: return give("cuMemcpyAsync", name);
      case CallKind::kLaunch: return give("cuLaunchKernel", name);
      case CallKind::kGraphLaunch: return give("cuGraphLaunch", name);
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
  });
}

}  // extern "C"
#pragma GCC visibility pop
