// SPDX-License-Identifier: Apache-2.0
// A constant that the program writes in all ways, again and again: what it reads back and what
// kernels read is what it has written last, also in graphs; another load of the module has a
// constant of its own, with its first value. `unloaded`: then it launches a graph that writes the
// constant of a module that is unloaded, which is an error of its own. Run by run_e2e.py. usage:
// drv_constants [unloaded]
#include <string>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 4;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kRounds = 200;
constexpr char kCode[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .const .align 8 .u32 table[4] = {1, 2, 3, 4};
.visible .entry read_table(.param .u64 words) {
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [words];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  mov.u64 %rd3, table;
  add.s64 %rd3, %rd3, %rd2;
  ld.const.u32 %r2, [%rd3];
  add.s64 %rd4, %rd1, %rd2;
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

using Words = std::vector<uint32_t>;

class Table {
 public:
  Table() : read_(kWords), source_(kWords) {
    CHECK_CU(cuModuleLoadDataEx(&module_, kCode, 0, nullptr, nullptr));
    CHECK_CU(cuModuleGetFunction(&kernel_, module_, "read_table"));
    size_t bytes = 0;
    CHECK_CU(cuModuleGetGlobal_v2(&address_, &bytes, module_, "table"));
    e2e::expect(bytes == kBytes, "the constant has %zu bytes", bytes);
    CHECK_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    capture();
  }
  ~Table() {
    CHECK_CU(cuGraphExecDestroy(exec_));
    CHECK_CU(cuStreamDestroy_v2(stream_));
    if (module_ != nullptr) CHECK_CU(cuModuleUnload(module_));
  }

  // Writes `values` in the way of that number. True: kernels and the host find them.
  bool write(uint32_t way, const Words& values) {
    if (!begin(way, values)) return false;
    e2e::launch(kernel_, 1, kWords, 0, stream_, read_.address);
    CHECK_CU(cuStreamSynchronize(stream_));
    Words back(kWords);
    CHECK_CU(cuMemcpyDtoH_v2(back.data(), address_, kBytes));
    return read_.get() == values && back == values;
  }
  [[nodiscard]] bool has(const Words& values) {
    e2e::launch(kernel_, 1, kWords, 0, stream_, read_.address);
    CHECK_CU(cuStreamSynchronize(stream_));
    return read_.get() == values;
  }
  // Of the graph, when the module is unloaded.
  CUresult launch_unloaded() {
    CHECK_CU(cuModuleUnload(module_));
    module_ = nullptr;
    const CUresult launched = cuGraphLaunch(exec_, stream_);
    return launched != CUDA_SUCCESS ? launched : cuStreamSynchronize(stream_);
  }

  static constexpr uint32_t kWays = 8;

 private:
  // Copies `source_` to the constant, reads it by a kernel, and copies it back to `source_`.
  void capture() {
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_CU(cuMemcpyDtoDAsync_v2(address_, source_.address, kBytes, stream_));
    e2e::launch(kernel_, 1, kWords, 0, stream_, read_.address);
    CHECK_CU(cuMemsetD32Async(source_.address, 0, kWords, stream_));
    CHECK_CU(cuMemcpyDtoDAsync_v2(source_.address, address_, kBytes, stream_));
    CHECK_CU(cuStreamEndCapture(stream_, &graph));
    CHECK_CU(cuGraphInstantiateWithFlags(&exec_, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
  }
  bool begin(uint32_t way, const Words& values) {
    switch (way) {
      case 0:
        CHECK_CU(cuMemcpyHtoD_v2(address_, values.data(), kBytes));
        CHECK_CU(cuStreamSynchronize(nullptr));  // it may return before the last bytes are there
        return true;
      case 1:
        for (uint32_t i = 0; i < kWords; ++i) {
          CHECK_CU(cuMemcpyHtoDAsync_v2(address_ + 4 * i, &values[i], 4, stream_));
        }
        return true;
      case 2:
        source_.put(values);
        CHECK_CU(cuMemcpyDtoDAsync_v2(address_, source_.address, kBytes, stream_));
        return true;
      case 3:
        for (uint32_t i = 0; i < kWords; ++i) {
          CHECK_CU(cuMemsetD32Async(address_ + 4 * i, values[i], 1, stream_));
        }
        return true;
      case 4: {
        CUDA_MEMCPY2D rows{};
        rows.srcMemoryType = CU_MEMORYTYPE_HOST;
        rows.srcHost = values.data();
        rows.srcPitch = 8;
        rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.dstDevice = address_;
        rows.dstPitch = 8;
        rows.WidthInBytes = 8;
        rows.Height = 2;
        CHECK_CU(cuMemcpy2DAsync_v2(&rows, stream_));
        return true;
      }
      case 5:
        for (uint32_t i = 0; i < kWords; ++i) {
          CHECK_CU(cuStreamWriteValue32_v2(stream_, address_ + 4 * i, values[i], 0));
        }
        return true;
      case 6: {
        source_.put(values);
        CHECK_CU(cuGraphLaunch(exec_, stream_));
        CHECK_CU(cuStreamSynchronize(stream_));
        return read_.get() == values && source_.get() == values;
      }
      default:
        CHECK_CU(cuMemcpy(address_, reinterpret_cast<CUdeviceptr>(values.data()), kBytes));
        CHECK_CU(cuStreamSynchronize(nullptr));
        return true;
    }
  }

  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr address_ = 0;
  CUstream stream_ = nullptr;
  CUgraphExec exec_ = nullptr;
  e2e::Buffer<uint32_t> read_;
  e2e::Buffer<uint32_t> source_;
};

}  // namespace

int main(int argc, char** /*argv*/) {
  e2e::Session session;
  Table table;
  Table other;
  e2e::expect(table.has({1, 2, 3, 4}), "the first value");
  e2e::Random random(1);
  std::string wrong;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t way = 0; way < Table::kWays; ++way) {
      Words values(kWords);
      for (uint32_t& value : values) value = static_cast<uint32_t>(random.next());
      if (!table.write(way, values)) wrong += " " + std::to_string(way);
    }
  }
  e2e::expect(wrong.empty(), "values that were written last; not in ways%s", wrong.c_str());
  e2e::expect(other.has({1, 2, 3, 4}), "the other module's constant is its own");
  if (argc > 1) {
    e2e::expect_result("a graph whose module is unloaded", table.launch_unloaded(),
                       CUDA_ERROR_INVALID_VALUE);
  }
  e2e::expect(other.write(0, {5, 6, 7, 8}), "the other one is there");
  return e2e::finish();
}
