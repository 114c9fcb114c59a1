// SPDX-License-Identifier: Apache-2.0
// Which stream NULL means on the calling thread. The generated _ptds and _ptsz variants of
// functions without a stream parameter open a DefaultStreamScope around their base function;
// implementations that turn NULL into a stream ask per_thread_default_stream(). Any thread.
#pragma once

namespace openmps {

// Constant-initialised: costs no constructor at load.
inline constinit thread_local int g_per_thread_default_depth = 0;

// True while a per-thread variant is running on this thread: NULL means CU_STREAM_PER_THREAD.
inline bool per_thread_default_stream() { return g_per_thread_default_depth != 0; }

class DefaultStreamScope {
 public:
  DefaultStreamScope() { ++g_per_thread_default_depth; }
  ~DefaultStreamScope() { --g_per_thread_default_depth; }
  DefaultStreamScope(const DefaultStreamScope&) = delete;
  DefaultStreamScope& operator=(const DefaultStreamScope&) = delete;
};

}  // namespace openmps
