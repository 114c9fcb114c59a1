// SPDX-License-Identifier: Apache-2.0
// Versions, errors, numbers, attributes, the subscriber, and what is not supported.
#include "profiler.h"

namespace openmps::cupti::test {
namespace {

TEST_P(Profiler, Version) {
  uint32_t version = 0;
  ASSERT_EQ(cupti("cuptiGetVersion", &version), CUPTI_SUCCESS);
  EXPECT_EQ(version, GetParam() == 12 ? 28u : 130001u);
}

TEST_P(Profiler, Errors) {
  cupti("cuptiGetLastError");
  const char* text = nullptr;
  ASSERT_EQ(cupti("cuptiGetResultString", CUPTI_ERROR_NOT_SUPPORTED, &text), CUPTI_SUCCESS);
  EXPECT_STREQ(text, "CUPTI_ERROR_NOT_SUPPORTED");
  ASSERT_EQ(cupti("cuptiGetErrorMessage", CUPTI_ERROR_NOT_SUPPORTED, &text), CUPTI_SUCCESS);
  EXPECT_STREQ(text, "OpenMPS's libcupti can't do this");
  EXPECT_EQ(cupti("cuptiGetResultString", static_cast<CUptiResult>(500), &text),
            CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cupti("cuptiGetLastError"), CUPTI_SUCCESS);
  enable(CUPTI_ACTIVITY_KIND_INVALID);
  EXPECT_EQ(cupti("cuptiGetLastError"), CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_EQ(cupti("cuptiGetLastError"), CUPTI_SUCCESS);
}

TEST_P(Profiler, NumbersAreThoseOfRecords) {
  uint32_t id = 0;
  EXPECT_EQ(cupti("cuptiGetContextId", handle<CUcontext>(2), &id), CUPTI_SUCCESS);
  EXPECT_EQ(id, 2u);  // the lower half
  EXPECT_EQ(cupti("cuptiGetContextId", CUcontext{}, &id), CUPTI_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cupti("cuptiGetDeviceId", handle<CUcontext>(3), &id), CUPTI_SUCCESS);
  EXPECT_EQ(id, 3u);
  const auto stream_id = [&](uintptr_t context, uintptr_t stream, uint8_t per_thread) {
    const CUptiResult result = cupti("cuptiGetStreamIdEx", handle<CUcontext>(context),
                                     handle<CUstream>(stream), per_thread, &id);
    return result == CUPTI_SUCCESS ? static_cast<int>(id) : -static_cast<int>(result);
  };
  EXPECT_EQ(stream_id(0, 205, 0), 205);
  EXPECT_EQ(stream_id(0, 205, 1), 255);
  EXPECT_EQ(stream_id(2, 205, 0), 205);
  EXPECT_EQ(stream_id(3, 205, 0), -CUPTI_ERROR_INVALID_STREAM);
  EXPECT_EQ(stream_id(0, 0, 0), 100);  // of the current context
  EXPECT_EQ(stream_id(4, 0, 0), 400);
  EXPECT_EQ(stream_id(0, 0, 0), 100);
  EXPECT_EQ(cupti("cuptiGetStreamId", CUcontext{}, handle<CUstream>(7), &id), CUPTI_SUCCESS);
  EXPECT_EQ(id, 7u);
}

TEST_P(Profiler, Attributes) {
  size_t bytes = sizeof(size_t);
  size_t value = 0;
  const auto which = CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT;
  ASSERT_EQ(cupti("cuptiActivityGetAttribute", which, &bytes, static_cast<void*>(&value)),
            CUPTI_SUCCESS);
  EXPECT_EQ(value, 250u);
  value = 20;
  ASSERT_EQ(cupti("cuptiActivitySetAttribute", which, &bytes, static_cast<void*>(&value)),
            CUPTI_SUCCESS);
  value = 0;
  ASSERT_EQ(cupti("cuptiActivityGetAttribute", which, &bytes, static_cast<void*>(&value)),
            CUPTI_SUCCESS);
  EXPECT_EQ(value, 20u);
  value = 250;
  cupti("cuptiActivitySetAttribute", which, &bytes, static_cast<void*>(&value));
  bytes = 4;
  EXPECT_EQ(cupti("cuptiActivityGetAttribute", which, &bytes, static_cast<void*>(&value)),
            CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
  EXPECT_EQ(bytes, 8u);
  uint8_t on = 1;
  bytes = 1;
  EXPECT_EQ(cupti("cuptiActivitySetAttribute", CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER,
                  &bytes, static_cast<void*>(&on)),
            CUPTI_SUCCESS);
  EXPECT_EQ(cupti("cuptiActivitySetAttribute", static_cast<CUpti_ActivityAttribute>(11), &bytes,
                  static_cast<void*>(&on)),
            CUPTI_ERROR_INVALID_PARAMETER);
}

void ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

TEST_P(Profiler, OneSubscriberWhoIsToldNothing) {
  CUpti_SubscriberHandle subscriber = nullptr;
  void* const nothing = nullptr;
  ASSERT_EQ(cupti("cuptiSubscribe", &subscriber, &ignore, nothing), CUPTI_SUCCESS);
  CUpti_SubscriberHandle second = nullptr;
  EXPECT_EQ(cupti("cuptiSubscribe", &second, &ignore, nothing),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  const auto state = [&](CUpti_CallbackDomain domain, CUpti_CallbackId function) {
    uint32_t enabled = 2;
    EXPECT_EQ(cupti("cuptiGetCallbackState", &enabled, subscriber, domain, function),
              CUPTI_SUCCESS);
    return enabled;
  };
  constexpr auto driver_api = CUPTI_CB_DOMAIN_DRIVER_API;
  constexpr auto resource = CUPTI_CB_DOMAIN_RESOURCE;
  EXPECT_EQ(cupti("cuptiEnableCallback", 1u, subscriber, driver_api, 307u), CUPTI_SUCCESS);
  EXPECT_EQ(state(driver_api, 307), 1u);
  EXPECT_EQ(state(driver_api, 306), 0u);
  EXPECT_EQ(cupti("cuptiEnableDomain", 1u, subscriber, resource), CUPTI_SUCCESS);
  EXPECT_EQ(state(resource, 1), 1u);
  EXPECT_EQ(cupti("cuptiEnableAllDomains", 0u, subscriber), CUPTI_SUCCESS);
  EXPECT_EQ(state(driver_api, 307), 0u);
  EXPECT_EQ(cupti("cuptiEnableDomain", 1u, subscriber, CUPTI_CB_DOMAIN_SIZE),
            CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cupti("cuptiUnsubscribe", subscriber), CUPTI_SUCCESS);
  EXPECT_EQ(cupti("cuptiUnsubscribe", subscriber), CUPTI_ERROR_INVALID_PARAMETER);
  ASSERT_EQ(cupti("cuptiSubscribe", &subscriber, &ignore, nothing), CUPTI_SUCCESS);
  ASSERT_EQ(cupti("cuptiFinalize"), CUPTI_SUCCESS);  // ends it, too
  ASSERT_EQ(cupti("cuptiSubscribe", &subscriber, &ignore, nothing), CUPTI_SUCCESS);
  size_t domains = 9;
  CUpti_DomainTable table = nullptr;
  EXPECT_EQ(cupti("cuptiSupportedDomains", &domains, &table), CUPTI_SUCCESS);
  EXPECT_EQ(domains, 0u);
}

TEST_P(Profiler, NamesOfFunctionsWithRecords) {
  const char* name = nullptr;
  constexpr auto driver_api = CUPTI_CB_DOMAIN_DRIVER_API;
  EXPECT_EQ(cupti("cuptiGetCallbackName", driver_api, 307u, &name), CUPTI_SUCCESS);
  EXPECT_STREQ(name, "cuLaunchKernel");
  EXPECT_EQ(cupti("cuptiGetCallbackName", driver_api, 514u, &name), CUPTI_SUCCESS);
  EXPECT_STREQ(name, "cuGraphLaunch");
  EXPECT_EQ(cupti("cuptiGetCallbackName", driver_api, 1u, &name), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cupti("cuptiGetCallbackName", CUPTI_CB_DOMAIN_RUNTIME_API, 211u, &name),
            CUPTI_ERROR_INVALID_PARAMETER);
}

TEST_P(Profiler, WhatIsNotSupported) {
  EXPECT_EQ(cupti("cuptiProfilerInitialize", static_cast<void*>(nullptr)),
            CUPTI_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cupti("cuptiPmSamplingEnable", static_cast<void*>(nullptr)), CUPTI_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cupti("cuptiActivityConfigureUnifiedMemoryCounter", static_cast<void*>(nullptr), 0u),
            CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED);
  for (const char* const name :
       {"cuptiActivityEnableLatencyTimestamps", "cuptiActivityEnableHWTrace",
        "cuptiActivityEnableCudaEventDeviceTimestamps"}) {
    EXPECT_EQ(cupti(name, uint8_t{1}), CUPTI_ERROR_NOT_SUPPORTED) << name;
    EXPECT_EQ(cupti(name, uint8_t{0}), CUPTI_SUCCESS) << name;
  }
}

}  // namespace
}  // namespace openmps::cupti::test
