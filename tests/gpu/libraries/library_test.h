// SPDX-License-Identifier: Apache-2.0
// Shared by the programs of tests/gpu/libraries: device arrays, comparison with a reference on the
// CPU, and results in the format that the runner reads (see programs/harness.py). Main thread only.
// A failed check ends the process, and the runner gives the remaining tests to a new one.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace library_test {

struct Test {
  const char* name;
  void (*run)();
};

// The name of the running test, and its value, if it has one.
inline const char* current = "";
inline std::string value;

[[noreturn]] inline void fail(const std::string& text) {
  std::printf("{\"test\": \"%s\", \"status\": \"failed\", \"seconds\": 0, \"detail\": \"%s\"}\n",
              current, text.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

// Fails unless a call of a CUDA library has returned 0, which is success in all of them.
template <typename Status>
void check(Status status, const char* call) {
  if (static_cast<int>(status) != 0) {
    fail(std::string(call) + " gave " + std::to_string(static_cast<int>(status)));
  }
}
#define CHECK(call) ::library_test::check((call), #call)

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    CHECK(cudaMalloc(&data_, count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    CHECK(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* get() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> host() const {
    std::vector<T> copy(count_);
    CHECK(cudaMemcpy(copy.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// Numbers in [-1, 1), the same in every run: a linear congruential generator (Knuth's constants).
template <typename T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> made(count);
  std::uint64_t state = seed;
  for (T& number : made) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    number = static_cast<T>(static_cast<double>(state >> 11) / (1ULL << 52) - 1.0);
  }
  return made;
}

// Fails unless every element is within `tolerance` of the reference (absolute, plus relative).
template <typename T, typename U>
void close(const std::vector<T>& got, const std::vector<U>& want, double tolerance,
           const char* what) {
  if (got.size() != want.size()) fail(std::string(what) + ": other sizes");
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double mine = static_cast<double>(got[i]);
    const double reference = static_cast<double>(want[i]);
    if (!(std::fabs(mine - reference) <= tolerance * (1.0 + std::fabs(reference)))) {
      fail(std::string(what) + ": element " + std::to_string(i) + " is " + std::to_string(mine) +
           ", expected " + std::to_string(reference));
    }
  }
}

// Column-major C = A * B, A of m x k and B of k x n, summed in double precision.
template <typename T>
std::vector<double> product(const std::vector<T>& a, const std::vector<T>& b, int m, int n, int k) {
  std::vector<double> c(static_cast<std::size_t>(m) * n, 0.0);
  for (int column = 0; column < n; ++column) {
    for (int inner = 0; inner < k; ++inner) {
      const double factor = static_cast<double>(b[inner + static_cast<std::size_t>(column) * k]);
      for (int row = 0; row < m; ++row) {
        c[row + static_cast<std::size_t>(column) * m] +=
            static_cast<double>(a[row + static_cast<std::size_t>(inner) * m]) * factor;
      }
    }
  }
  return c;
}

// The bits of a result as the test's value: equal natively and behind OpenMPS.
template <typename T>
void remember(const std::vector<T>& data) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  for (std::size_t i = 0; i < data.size() * sizeof(T); ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211ULL;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  value = text;
}

// Runs the tests, or with `--after NAME` those that follow NAME.
inline int run(int argc, char** argv, const std::vector<Test>& tests) {
  std::size_t first = 0;
  if (argc == 3 && std::strcmp(argv[1], "--after") == 0) {
    while (first < tests.size() && std::strcmp(tests[first].name, argv[2]) != 0) ++first;
    ++first;
  }
  std::printf("{\"plan\": [");
  for (std::size_t i = first; i < tests.size(); ++i) {
    std::printf("%s\"%s\"", i == first ? "" : ", ", tests[i].name);
  }
  std::printf("]}\n");
  for (std::size_t i = first; i < tests.size(); ++i) {
    current = tests[i].name;
    value.clear();
    std::printf("{\"test\": \"%s\", \"status\": \"running\"}\n", current);
    std::fflush(stdout);
    tests[i].run();
    CHECK(cudaDeviceSynchronize());
    const std::string field = value.empty() ? "" : ", \"value\": \"" + value + "\"";
    std::printf("{\"test\": \"%s\", \"status\": \"ok\", \"seconds\": 0%s}\n", current,
                field.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace library_test
