// SPDX-License-Identifier: Apache-2.0
// Fuzz target of image reading: the input is what a program passes to cuModuleLoadData. The
// client's reader must not find more bytes than the file has. The worker's must accept only images
// that lie within their bytes, and write only there when it places variables. softgpu's gives PTX
// text without a NUL, or an error with a reason.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "client/image.h"
#include "softgpu/fatbin/fatbin.h"
#include "worker/images/image_bounds.h"
#include "worker/images/image_facts.h"
#include "worker/images/image_variables.h"
#include "worker/images/prelinked.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const Result<client::Image> image = client::find_image(file);
  if (image.ok()) {
    const auto* start = reinterpret_cast<const uint8_t*>(image->data);
    if (start < data || image->bytes > size || start - data > static_cast<ptrdiff_t>(size)) abort();
  } else if (image.status().message().empty()) {
    abort();
  }
  const Status inside = worker::check_image_bounds({data, size});
  if (!inside.ok() && inside.message().empty()) abort();
  if (inside.ok()) {
    static_cast<void>(worker::read_image_facts({data, size}, 90));
    const auto find = [](const std::string&) -> Result<CUdeviceptr> { return 0x7f12'3456'7890; };
    const auto placed = worker::place_variables({data, size}, 90, 1 << 20, find);
    if (placed.ok() ? placed->back() != 0 : placed.status().message().empty()) abort();
    if (worker::DriverImage({data, size}).data() == nullptr && size != 0) abort();
  }
  // Not fuzzed: a wrapper holds pointers into its program, which can't be checked.
  constexpr uint32_t kWrapperMagic = 0x466243b1;
  if (size >= sizeof(kWrapperMagic) && memcmp(data, &kWrapperMagic, sizeof(kWrapperMagic)) == 0) {
    return 0;
  }
  for (const uint32_t capability : {75u, 90u, 120u}) {
    const Result<std::vector<std::string>> texts =
        softgpu::fatbin::extract_ptx(data, size, capability);
    if (texts.ok() ? texts->size() != 1 || texts->front().find('\0') != std::string::npos
                   : texts.status().message().empty()) {
      abort();
    }
  }
  return 0;
}
