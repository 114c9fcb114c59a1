// SPDX-License-Identifier: Apache-2.0
// cuLink* with files that nvcc makes for the host's linker: an object of a program with relocatable
// device code, and the library of the device runtime; then invalid inputs. Run by run_e2e.py.
// usage: drv_link_objects OBJECT LIBRARY OBJECT: the object of ../programs/nested_streams.cu;
// LIBRARY: libcudadevrt.a.
#include <string>

#include "driver.h"

namespace {

struct Linker {
  CUlinkState state = nullptr;
  Linker() { CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &state)); }
  Linker(const Linker&) = delete;
  ~Linker() { CHECK_CU(cuLinkDestroy(state)); }
  CUresult add(CUjitInputType type, const char* path) {
    return cuLinkAddFile_v2(state, type, path, 0, nullptr, nullptr);
  }
  CUresult add_data(CUjitInputType type, std::string data) {
    return cuLinkAddData_v2(state, type, data.data(), data.size(), "made up", 0, nullptr, nullptr);
  }
};

void run(const char* object, const char* library) {
  Linker linker;
  CHECK_CU(linker.add(CU_JIT_INPUT_OBJECT, object));
  CHECK_CU(linker.add(CU_JIT_INPUT_LIBRARY, library));
  void* image = nullptr;
  size_t size = 0;
  CHECK_CU(cuLinkComplete(linker.state, &image, &size));
  CUmodule module = nullptr;
  CUfunction in_order = nullptr;
  CHECK_CU(cuModuleLoadData(&module, image));
  CHECK_CU(cuModuleGetFunction(&in_order, module, "_Z8in_orderPi"));
  e2e::Buffer<int> numbers(std::vector<int>(4, 0));
  e2e::launch(in_order, 4, 1, 0, nullptr, numbers.address);
  CHECK_CU(cuCtxSynchronize());
  e2e::expect(numbers.get() == std::vector<int>(4, 12345), "kernels of an object, linked and run");
  CHECK_CU(cuModuleUnload(module));
}

void misuse(const char* object) {
  Linker linker;
  e2e::expect(linker.add_data(CU_JIT_INPUT_OBJECT, "nothing of the kind") != CUDA_SUCCESS,
              "refused: an object that is none");
  e2e::expect(linker.add_data(CU_JIT_INPUT_LIBRARY, "!<arch>\nbroken") != CUDA_SUCCESS,
              "refused: a damaged library");
  e2e::expect_result("no such file", linker.add(CU_JIT_INPUT_OBJECT, "/nowhere/at/all.o"),
                     {CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_IMAGE});
  CHECK_CU(linker.add(CU_JIT_INPUT_OBJECT, object));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: drv_link_objects OBJECT LIBRARY\n");
    return 2;
  }
  e2e::Session session;
  run(argv[1], argv[2]);
  misuse(argv[1]);
  return e2e::finish();
}
