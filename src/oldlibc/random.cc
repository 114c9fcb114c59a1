// SPDX-License-Identifier: Apache-2.0
// Random bytes: getrandom() and getentropy() (glibc 2.25), arc4random() (2.36, which
// std::random_device asks for). Any thread.
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" {

ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  return syscall(SYS_getrandom, bytes, count, flags);
}

int getentropy(void* bytes, size_t count) {
  return getrandom(bytes, count, 0) == static_cast<ssize_t>(count) ? 0 : -1;
}

// It has no way to fail.
uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}

}  // extern "C"
