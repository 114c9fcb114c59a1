// SPDX-License-Identifier: Apache-2.0
// Control flow of ptx/control.cu, compiled by nvcc for three architectures, under round robin and
// twenty seeded schedules: every result is computed again on the host.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

std::string read_ptx(const std::string& name) {
  std::ifstream file(std::string(OPENMPS_TEST_PTX_DIR) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Control : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(device.load(read_ptx("control_" + std::to_string(GetParam()) + ".ptx")))
        << device.error.log;
    EXPECT_EQ(device.unsupported(), "");
  }

  // Run under every schedule and compare with `expected` of the thread's number.
  void check(const char* kernel, uint32_t blocks, uint32_t threads, int argument,
             const std::function<int(int)>& expected) {
    for (uint64_t seed = 0; seed <= 20; ++seed) {
      std::vector<int> out(blocks * threads, -12345);
      const Outcome outcome =
          device.run(kernel, {blocks}, {threads},
                     Parameters().add(device.buffer(out)).add(argument), 0, seed, 5000);
      ASSERT_EQ(outcome.state, BlockState::kFinished)
          << kernel << " seed " << seed << " " << outcome.fault.text;
      for (int i = 0; i < static_cast<int>(out.size()); ++i) {
        ASSERT_EQ(out[static_cast<size_t>(i)], expected(i))
            << kernel << ", thread " << i << ", seed " << seed;
      }
      device.memory.remove(out.data());
    }
  }

  Device device;
};

INSTANTIATE_TEST_SUITE_P(Architectures, Control, testing::Values(75, 80, 90));

TEST_P(Control, DivergentLoop) {
  check("divergent_loop", 2, 80, 9, [](int i) {
    int sum = 0;
    for (int k = 0; k < (i * 7) % 33; ++k) {
      if ((k ^ i) & 1) {
        sum += k * 3;
      } else {
        sum -= k;
      }
      if (sum > 500 + i) break;
      if ((k & 3) == 2) continue;
      sum ^= 9;
    }
    return sum;
  });
}

TEST_P(Control, LoopWithReturn) {
  check("loop_with_return", 2, 96, 12, [](int i) {
    auto wrap = [](int64_t v) { return static_cast<int>(static_cast<uint32_t>(v)); };
    int sum = i;
    for (int k = 0; k < 12; ++k) {
      sum = wrap(int64_t{sum} * 5 + k);
      if (sum % 11 == 3) return sum;
      for (int j = 0; j < (i & 3); ++j) {
        sum += j;
        if (sum % 17 == 5) return -sum;
      }
    }
    return sum;
  });
}

TEST_P(Control, BarrierInLoop) {
  for (int threads : {64, 100, 256}) {
    std::vector<int> data(static_cast<size_t>(threads)), next(data.size());
    for (int t = 0; t < threads; ++t) data[static_cast<size_t>(t)] = t;
    for (int r = 0; r < 6; ++r) {
      for (int t = 0; t < threads; ++t) {
        next[static_cast<size_t>(t)] =
            data[static_cast<size_t>((t + 1) % threads)] + r + (t % 5 == r % 5);
      }
      data = next;
    }
    check("barrier_in_loop", 1, static_cast<uint32_t>(threads), 6,
          [&](int i) { return data[static_cast<size_t>(i)]; });
  }
}

TEST_P(Control, ThreadsThatLeftCountAtBarriers) {
  check("early_exit_barrier", 2, 128, 75,
        [](int i) { return i % 128 < 75 ? 75 * 74 / 2 : -12345; });
}

TEST_P(Control, NestedShuffle) {
  std::vector<int> v(32), w(32);
  for (int i = 0; i < 32; ++i) v[static_cast<size_t>(i)] = i * i + 3;
  auto at = [](std::vector<int>& x, int i) -> int& { return x[static_cast<size_t>(i)]; };
  w = v;
  for (int i = 1; i < 32; i += 2) at(w, i) += at(v, i ^ 2);
  v = w;
  for (int i = 3; i < 32; i += 4) at(w, i) += at(v, (i & 4) | 3) & 0xff;
  v = w;
  int odd = 0;
  for (int i = 1; i < 32; i += 2) odd += at(v, i) & 1;
  for (int i = 1; i < 32; i += 2) at(v, i) -= odd;
  for (int i = 0; i < 32; i += 2) {
    for (int k = 0; k < (i >> 2); ++k) at(v, i) += k;
  }
  w = v;
  for (int i = 0; i < 32; i += 2) at(v, i) += at(w, i >= 2 ? i - 2 : i);
  w = v;
  for (int i = 0; i < 32; ++i) at(v, i) += at(w, i < 31 ? i + 1 : i);
  check("nested_shuffle", 1, 32, 3, [&](int i) { return at(v, i); });
}

TEST_P(Control, SpinLocks) {
  for (const char* kernel : {"spin_lock", "spin_lock_outside"}) {
    for (uint64_t seed = 0; seed <= 20; ++seed) {
      std::vector<int> out(2 * 64), state(2);
      Parameters parameters;
      parameters.add(device.buffer(out)).add(device.buffer(state)).add(state.data() + 1);
      const Outcome outcome = device.run(kernel, {2}, {64}, parameters, 0, seed, 3000);
      ASSERT_EQ(outcome.state, BlockState::kFinished) << kernel << " " << outcome.fault.text;
      EXPECT_EQ(state[1], 128) << kernel << " seed " << seed;
      EXPECT_EQ(state[0], 0);
      device.memory.remove(out.data());
      device.memory.remove(state.data());
    }
  }
}

TEST_P(Control, OneWarpWaitsForAnother) {
  check("warp_flag", 1, 64, 0, [](int i) { return i < 32 ? 42 + i : 7; });
}

TEST_P(Control, BlocksWaitForEachOther) {
  for (uint64_t seed = 0; seed <= 20; ++seed) {
    std::vector<int> out(6), ticket(1);
    const Outcome outcome =
        device.run("block_chain", {6}, {32},
                   Parameters().add(device.buffer(out)).add(device.buffer(ticket)), 0, seed, 500);
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    EXPECT_EQ(out, (std::vector<int>{100, 101, 103, 106, 110, 115}));
    device.memory.remove(out.data());
    device.memory.remove(ticket.data());
  }
}

TEST_P(Control, BigSwitch) {
  check("big_switch", 1, 90, 5, [](int i) {
    int v = i;
    for (int k = 0; k < 4; ++k) switch ((i + k * 5) % 9) {
        case 0: v += 1; break;
        case 1: v *= 3; break;
        case 2: v ^= 0x55; break;
        case 3: v -= i; [[fallthrough]];
        case 4: v += 1000; break;
        case 5: v = -v; break;
        case 6: v = static_cast<int>(static_cast<uint32_t>(v) << 2); break;
        case 7: v /= 3; break;
        default: v = ~v;
      }
    return v;
  });
}

TEST_P(Control, Recursion) {
  const std::function<int(int, int)> ackermann = [&](int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
  };
  check("recursion", 1, 64, 0, [&](int i) { return ackermann(i % 3, i % 5); });
}

TEST_P(Control, BarrierInCall) {
  std::vector<int> v(96);
  for (int i = 0; i < 96; ++i) v[static_cast<size_t>(i)] = i;
  for (int k = 0; k < 5; ++k) {
    int odd = 0;
    for (int x : v) odd += x & 1;
    for (int& x : v) x += odd;
  }
  check("barrier_in_call", 1, 96, 5, [&](int i) { return v[static_cast<size_t>(i)]; });
}

TEST_P(Control, GotoLoops) {
  check("goto_loops", 1, 64, 4, [](int i) {
    int a = i, b = 0;
  again:
    if (a > 40) goto out_of_it;
    b += a;
  inner:
    a += (b & 3) + 1;
    if (a % 6 == 1) goto inner;
    if (b < 4 * i) goto again;
  out_of_it:
    return a * 1000 + b;
  });
}

TEST_P(Control, NamedBarriers) {
  check("named_barriers", 1, 64, 0, [](int i) { return (i % 32) * 2 + 1; });
}

}  // namespace
}  // namespace openmps::softgpu::test
