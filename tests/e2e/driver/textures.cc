// SPDX-License-Identifier: Apache-2.0
// Arrays, texture objects and surface objects through the driver API: every kind of copy with
// arrays, fetches compared with a reference on the host, surface reads and writes. The kernels are
// written in PTX, because clang has no texture functions. Run by run_e2e.py.
#include <algorithm>
#include <cmath>
#include <string>

#include "driver.h"

namespace {

struct Vector {
  float x, y, z, w;
};

// A kernel that reads one Vector per thread (as numbers: %f1.. and %r1..), runs `body`, and writes
// {%f11..%f14} for it.
std::string kernel(const char* name, const std::string& body) {
  return std::string(".visible .entry ") + name +
         "(.param .u64 p_handle, .param .u64 p_in, .param .u64 p_out, .param .u32 p_count) {\n"
         "  .reg .pred %p<3>; .reg .b32 %r<30>; .reg .b64 %rd<10>; .reg .f32 %f<20>;\n"
         "  .reg .b16 %h<10>;\n"
         "  ld.param.u64 %rd1, [p_handle]; ld.param.u64 %rd2, [p_in];\n"
         "  ld.param.u64 %rd3, [p_out]; ld.param.u32 %r20, [p_count];\n"
         "  mov.u32 %r21, %ctaid.x; mov.u32 %r22, %ntid.x; mov.u32 %r23, %tid.x;\n"
         "  mad.lo.u32 %r24, %r21, %r22, %r23; setp.ge.u32 %p1, %r24, %r20; @%p1 ret;\n"
         "  mul.wide.u32 %rd4, %r24, 16; add.u64 %rd5, %rd2, %rd4; add.u64 %rd6, %rd3, %rd4;\n"
         "  ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd5];\n"
         "  cvt.rzi.s32.f32 %r1, %f1; cvt.rzi.s32.f32 %r2, %f2; cvt.rzi.s32.f32 %r3, %f3;\n" +
         body + "  st.global.v4.f32 [%rd6], {%f11, %f12, %f13, %f14};\n  ret;\n}\n";
}

std::string fetch(const char* name, const char* opcode, const char* coordinates) {
  return kernel(name, std::string("  ") + opcode + " {%f11, %f12, %f13, %f14}, [%rd1, " +
                          coordinates + ";\n");
}
std::string fetch_integer(const char* name, const char* opcode, const char* coordinates) {
  return kernel(name, std::string("  ") + opcode + " {%r11, %r12, %r13, %r14}, [%rd1, " +
                          coordinates +
                          ";\n  mov.b32 %f11, %r11; mov.b32 %f12, %r12;"
                          " mov.b32 %f13, %r13; mov.b32 %f14, %r14;\n");
}

std::string all_kernels() {
  const std::string zero =
      "  mov.f32 %f11, 0f00000000; mov.f32 %f12, %f11; mov.f32 %f13, %f11; mov.f32 %f14, %f11;\n";
  return ".version 7.0\n.target sm_70\n.address_size 64\n" +
         fetch("fetch_index", "tex.1d.v4.f32.s32", "{%r1}]") +
         fetch("fetch_1d", "tex.1d.v4.f32.f32", "{%f1}]") +
         fetch("fetch_2d", "tex.2d.v4.f32.f32", "{%f1, %f2}]") +
         fetch("fetch_3d", "tex.3d.v4.f32.f32", "{%f1, %f2, %f3, %f3}]") +
         fetch("fetch_layered", "tex.a2d.v4.f32.f32", "{%r3, %f1, %f2, %f2}]") +
         fetch("fetch_level", "tex.level.2d.v4.f32.f32", "{%f1, %f2}], %f3") +
         fetch("gather_green", "tld4.g.2d.v4.f32.f32", "{%f1, %f2}]") +
         fetch_integer("fetch_u32", "tex.2d.v4.u32.f32", "{%f1, %f2}]") +
         fetch_integer("fetch_s32", "tex.2d.v4.s32.f32", "{%f1, %f2}]") +
         // surface (x, y) = z; the texels have four bytes
         kernel(
             "store_2d",
             "  shl.b32 %r4, %r1, 2;\n  sust.b.2d.b32.trap [%rd1, {%r4, %r2}], {%f3};\n" + zero) +
         kernel(
             "store_2d_zero",
             "  shl.b32 %r4, %r1, 2;\n  sust.b.2d.b32.zero [%rd1, {%r4, %r2}], {%f3};\n" + zero) +
         // Before any fetch, the first thread waits until the host sets a word.
         kernel("fetch_2d_late",
                "  ld.global.u64 %rd7, [%rd2+16];\n"
                "$wait: ld.volatile.global.u32 %r9, [%rd7];\n"
                "  setp.eq.u32 %p2, %r9, 0; @%p2 bra $wait;\n"
                "  tex.2d.v4.f32.f32 {%f11, %f12, %f13, %f14}, [%rd1, {%f1, %f2}];\n") +
         kernel("load_2d_late", zero +
                                    "  ld.global.u64 %rd7, [%rd2+16];\n"
                                    "$wait: ld.volatile.global.u32 %r9, [%rd7];\n"
                                    "  setp.eq.u32 %p2, %r9, 0; @%p2 bra $wait;\n"
                                    "  shl.b32 %r4, %r1, 2;\n"
                                    "  suld.b.2d.b32.zero {%f11}, [%rd1, {%r4, %r2}];\n") +
         kernel("store_3d",
                "  shl.b32 %r4, %r1, 2;\n"
                "  sust.b.3d.b32.trap [%rd1, {%r4, %r2, %r3, %r3}], {%f4};\n" +
                    zero) +
         kernel("store_layered",
                "  shl.b32 %r4, %r1, 3;\n"
                "  sust.b.a2d.v2.b32.trap [%rd1, {%r3, %r4, %r2, %r2}], {%f3, %f4};\n" +
                    zero) +
         kernel("load_2d_clamp", zero +
                                     "  shl.b32 %r4, %r1, 2;\n"
                                     "  suld.b.2d.b32.clamp {%f11}, [%rd1, {%r4, %r2}];\n") +
         kernel("load_2d_zero", zero +
                                    "  shl.b32 %r4, %r1, 2;\n"
                                    "  suld.b.2d.b32.zero {%f11}, [%rd1, {%r4, %r2}];\n") +
         kernel("load_1d_bytes", zero +
                                     "  suld.b.1d.v4.b8.trap {%h1, %h2, %h3, %h4}, [%rd1, {%r1}];\n"
                                     "  cvt.rn.f32.u16 %f11, %h1; cvt.rn.f32.u16 %f12, %h2;\n"
                                     "  cvt.rn.f32.u16 %f13, %h3; cvt.rn.f32.u16 %f14, %h4;\n");
}

struct Kernels {
  CUmodule module = nullptr;
  Kernels() { CHECK_CU(cuModuleLoadData(&module, all_kernels().c_str())); }
  ~Kernels() { CHECK_CU(cuModuleUnload(module)); }
  std::vector<Vector> run(const char* name, uint64_t handle, const std::vector<Vector>& in) const {
    CUfunction function = nullptr;
    CHECK_CU(cuModuleGetFunction(&function, module, name));
    e2e::Buffer<Vector> from(in);
    e2e::Buffer<Vector> to(in.size());
    CHECK_CU(cuMemsetD8_v2(to.address, 0xff, to.bytes()));
    e2e::launch(function, e2e::blocks_for(in.size(), 96), 96, 0, nullptr, handle, from.address,
                to.address, static_cast<unsigned>(in.size()));
    CHECK_CU(cuCtxSynchronize());
    return to.get();
  }
};

CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth, CUarray_format format,
                              unsigned channels, unsigned flags = 0) {
  return {width, height, depth, format, channels, flags};
}

struct Array {
  CUarray handle = nullptr;
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& d) { CHECK_CU(cuArray3DCreate_v2(&handle, &d)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { CHECK_CU(cuArrayDestroy(handle)); }
};

// Copies a box between an array and host memory without gaps.
void put(CUarray array, const void* data, size_t row, size_t height, size_t depth) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = data;
  box.srcPitch = row;
  box.srcHeight = height;
  box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  box.dstArray = array;
  box.WidthInBytes = row;
  box.Height = height;
  box.Depth = depth;
  CHECK_CU(cuMemcpy3D_v2(&box));
}
void get(CUarray array, void* data, size_t row, size_t height, size_t depth) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box.srcArray = array;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = data;
  box.dstPitch = row;
  box.dstHeight = height;
  box.WidthInBytes = row;
  box.Height = height;
  box.Depth = depth;
  CHECK_CU(cuMemcpy3D_v2(&box));
}

CUDA_RESOURCE_DESC resource(CUarray array) {
  CUDA_RESOURCE_DESC made{};
  made.resType = CU_RESOURCE_TYPE_ARRAY;
  made.res.array.hArray = array;
  return made;
}

CUDA_TEXTURE_DESC description(CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
  CUDA_TEXTURE_DESC made{};
  std::fill(std::begin(made.addressMode), std::end(made.addressMode), mode);
  made.filterMode = filter;
  made.flags = flags;
  return made;
}

struct TextureObject {
  CUtexObject handle = 0;
  TextureObject(const CUDA_RESOURCE_DESC& r, const CUDA_TEXTURE_DESC& d) {
    CHECK_CU(cuTexObjectCreate(&handle, &r, &d, nullptr));
  }
  TextureObject(const TextureObject&) = delete;
  TextureObject& operator=(const TextureObject&) = delete;
  ~TextureObject() { CHECK_CU(cuTexObjectDestroy(handle)); }
};

struct SurfaceObject {
  CUsurfObject handle = 0;
  explicit SurfaceObject(CUarray array) {
    const CUDA_RESOURCE_DESC r = resource(array);
    CHECK_CU(cuSurfObjectCreate(&handle, &r));
  }
  SurfaceObject(const SurfaceObject&) = delete;
  SurfaceObject& operator=(const SurfaceObject&) = delete;
  ~SurfaceObject() { CHECK_CU(cuSurfObjectDestroy(handle)); }
};

std::vector<float> noise(size_t n, uint64_t seed) {
  std::vector<float> data(n);
  e2e::Random random(seed);
  for (float& value : data) value = random.unit();
  return data;
}

// ---- Copies -------------------------------------------------------------------------------------

void descriptors() {
  const CUDA_ARRAY3D_DESCRIPTOR d =
      shape(20, 10, 5, CU_AD_FORMAT_SIGNED_INT16, 2, CUDA_ARRAY3D_LAYERED);
  Array array(d);
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  CUDA_ARRAY_DESCRIPTOR narrow{};
  CHECK_CU(cuArray3DGetDescriptor_v2(&wide, array.handle));
  CHECK_CU(cuArrayGetDescriptor_v2(&narrow, array.handle));
  e2e::expect(wide.Width == 20 && wide.Height == 10 && wide.Depth == 5 &&
                  wide.Format == CU_AD_FORMAT_SIGNED_INT16 && wide.NumChannels == 2 &&
                  (wide.Flags & CUDA_ARRAY3D_LAYERED) != 0 && narrow.Width == 20 &&
                  narrow.Height == 10 && narrow.NumChannels == 2,
              "descriptors of an array");
}

void rows_of_an_array() {
  constexpr size_t kBytes = 40000;
  const CUDA_ARRAY_DESCRIPTOR d{kBytes / 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray a = nullptr, b = nullptr;
  CHECK_CU(cuArrayCreate_v2(&a, &d));
  CHECK_CU(cuArrayCreate_v2(&b, &d));
  std::vector<uint32_t> in(kBytes / 4), out(kBytes / 4);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<uint32_t>(i * 2654435761u);
  CHECK_CU(cuMemcpyHtoA_v2(a, 0, in.data(), kBytes));
  CHECK_CU(cuMemcpyAtoA_v2(b, 400, a, 800, kBytes - 800));
  CHECK_CU(cuMemcpyAtoA_v2(b, 0, a, 0, 400));
  CHECK_CU(cuMemcpyAtoH_v2(out.data(), b, 0, kBytes - 400));
  bool good = memcmp(out.data(), in.data(), 400) == 0 &&
              memcmp(out.data() + 100, in.data() + 200, kBytes - 800) == 0;
  e2e::Buffer<uint32_t> device(in.size());
  CHECK_CU(cuMemcpyAtoD_v2(device.address, a, 0, kBytes));
  good = good && device.get() == in;
  CHECK_CU(cuMemsetD32_v2(device.address, 7, in.size()));
  CHECK_CU(cuMemcpyDtoA_v2(a, 4000, device.address + 16, 8000));
  CHECK_CU(cuMemcpyAtoH_v2(out.data(), a, 0, kBytes));
  for (size_t i = 0; i < in.size(); i++) {
    good = good && out[i] == (i >= 1000 && i < 3000 ? 7u : in[i]);
  }
  e2e::expect(good, "rows between host, device and arrays");

  CUstream stream = nullptr;
  void* pinned = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAllocHost_v2(&pinned, kBytes));
  memcpy(pinned, in.data(), kBytes);
  CHECK_CU(cuMemcpyHtoAAsync_v2(b, 0, pinned, kBytes, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  memset(pinned, 0, kBytes);
  CHECK_CU(cuMemcpyAtoHAsync_v2(pinned, b, 0, kBytes, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::expect(memcmp(pinned, in.data(), kBytes) == 0, "rows between pinned memory and an array");
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuStreamDestroy_v2(stream));
  e2e::expect_result("a row beyond the array", cuMemcpyHtoA_v2(a, 4, in.data(), kBytes),
                     CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuArrayDestroy(a));
  CHECK_CU(cuArrayDestroy(b));
  e2e::expect_result("a copy to a destroyed array", cuMemcpyHtoA_v2(a, 0, in.data(), 4),
                     {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
}

// Copies a box of an array of `width` by `height` by `depth` and back, through device, pageable and
// pinned memory.
void boxes(const char* what, size_t width, size_t height, size_t depth, unsigned flags) {
  constexpr size_t kTexel = 8;  // two floats
  const size_t row = width * kTexel;
  const size_t rows = std::max<size_t>(height, 1), planes = std::max<size_t>(depth, 1);
  Array array(shape(width, height, depth, CU_AD_FORMAT_FLOAT, 2, flags));
  const std::vector<float> in = noise(row / 4 * rows * planes, width);
  std::vector<float> out(in.size());
  put(array.handle, in.data(), row, rows, planes);
  get(array.handle, out.data(), row, rows, planes);
  bool good = out == in;

  // A part of it, moved within the array, through device memory with gaps.
  const size_t part = row - 2 * kTexel;
  CUdeviceptr middle = 0;
  size_t pitch = 0;
  CHECK_CU(cuMemAllocPitch_v2(&middle, &pitch, part, rows * planes, 8));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box.srcArray = array.handle;
  box.srcXInBytes = kTexel;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = middle;
  box.dstPitch = pitch;
  box.dstHeight = rows;
  box.WidthInBytes = part;
  box.Height = rows;
  box.Depth = planes;
  CHECK_CU(cuMemcpy3D_v2(&box));
  CUDA_MEMCPY3D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = middle;
  back.srcPitch = pitch;
  back.srcHeight = rows;
  back.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  back.dstArray = array.handle;
  back.WidthInBytes = part;
  back.Height = rows;
  back.Depth = planes;
  CHECK_CU(cuMemcpy3DAsync_v2(&back, nullptr));
  get(array.handle, out.data(), row, rows, planes);
  for (size_t r = 0; r < rows * planes; r++) {
    const float* was = &in[r * row / 4];
    const float* is = &out[r * row / 4];
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bit for bit
    good = good && memcmp(is, was + 2, part) == 0 && memcmp(is + part / 4, was + part / 4, 16) == 0;
  }
  CHECK_CU(cuMemFree_v2(middle));
  e2e::expect(good, "boxes of an array: %s", what);
  back.dstXInBytes = 3 * kTexel;
  back.srcMemoryType = CU_MEMORYTYPE_HOST;
  back.srcHost = in.data();
  e2e::expect_result("a box beyond the array", cuMemcpy3D_v2(&back), CUDA_ERROR_INVALID_VALUE);
}

void rectangles() {
  constexpr size_t kWidth = 300, kHeight = 70;
  const CUDA_ARRAY_DESCRIPTOR d{kWidth, kHeight, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray a = nullptr, b = nullptr;
  CHECK_CU(cuArrayCreate_v2(&a, &d));
  CHECK_CU(cuArrayCreate_v2(&b, &d));
  std::vector<unsigned char> in(kWidth * kHeight), out(kWidth * kHeight);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<unsigned char>(i * 7 + i / 300);
  void* pinned = nullptr;
  CHECK_CU(cuMemHostAlloc(&pinned, in.size(), CU_MEMHOSTALLOC_PORTABLE));
  memset(pinned, 0, in.size());
  CUDA_MEMCPY2D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = in.data();
  box.srcPitch = kWidth;
  box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  box.dstArray = a;
  box.WidthInBytes = kWidth;
  box.Height = kHeight;
  CHECK_CU(cuMemcpy2D_v2(&box));
  CUDA_MEMCPY2D across{};
  across.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = a;
  across.srcXInBytes = 10;
  across.srcY = 5;
  across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.dstArray = b;
  across.dstXInBytes = 20;
  across.dstY = 6;
  across.WidthInBytes = 200;
  across.Height = 50;
  CHECK_CU(cuMemcpy2DUnaligned_v2(&across));
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = b;
  back.srcXInBytes = 20;
  back.srcY = 6;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = pinned;
  back.dstPitch = kWidth;
  back.WidthInBytes = 200;
  back.Height = 50;
  CHECK_CU(cuMemcpy2DAsync_v2(&back, nullptr));
  CHECK_CU(cuStreamSynchronize(nullptr));
  bool good = true;
  for (size_t y = 0; y < 50; y++) {
    good = good && memcmp(static_cast<unsigned char*>(pinned) + y * kWidth,
                          &in[(y + 5) * kWidth + 10], 200) == 0;
  }
  e2e::expect(good, "rectangles between host and arrays");
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuArrayDestroy(a));
  CHECK_CU(cuArrayDestroy(b));
}

// ---- Textures -----------------------------------------------------------------------------------

int place(int i, int n, CUaddress_mode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case CU_TR_ADDRESS_MODE_WRAP: return (i % n + n) % n;
    case CU_TR_ADDRESS_MODE_CLAMP: return i < 0 ? 0 : n - 1;
    case CU_TR_ADDRESS_MODE_MIRROR: {
      const int folded = (i % (2 * n) + 2 * n) % (2 * n);
      return folded < n ? folded : 2 * n - 1 - folded;
    }
    default: return -1;
  }
}

// Linear filtering in double precision; border texels are 0.
double reference(const std::vector<float>& image, int width, int height, double x, double y,
                 CUaddress_mode mode) {
  const double u = x - 0.5, v = y - 0.5;
  const int i = static_cast<int>(std::floor(u)), j = static_cast<int>(std::floor(v));
  const double a = u - i, b = v - j;
  const auto at = [&](int px, int py) -> double {
    const int qx = place(px, width, mode), qy = place(py, height, mode);
    return qx < 0 || qy < 0 ? 0 : image[static_cast<size_t>(qy) * width + qx];
  };
  return (1 - a) * (1 - b) * at(i, j) + a * (1 - b) * at(i + 1, j) + (1 - a) * b * at(i, j + 1) +
         a * b * at(i + 1, j + 1);
}

// Two weights of 8 fractional bits each are off by 1/512 at most, texels are 0 to 1.
constexpr double kTolerance = 2.0 / 256;

void filtering(const Kernels& kernels) {
  constexpr int kWidth = 37, kHeight = 19;
  const std::vector<float> image = noise(kWidth * kHeight, 3);
  Array array(shape(kWidth, kHeight, 0, CU_AD_FORMAT_FLOAT, 1));
  put(array.handle, image.data(), kWidth * 4, kHeight, 1);
  struct Case {
    const char* name;
    CUaddress_mode mode;
    bool normalized;
  };
  for (const Case& c : {Case{"clamp", CU_TR_ADDRESS_MODE_CLAMP, false},
                        Case{"border", CU_TR_ADDRESS_MODE_BORDER, false},
                        Case{"clamp, normalized", CU_TR_ADDRESS_MODE_CLAMP, true},
                        Case{"border, normalized", CU_TR_ADDRESS_MODE_BORDER, true},
                        Case{"wrap, normalized", CU_TR_ADDRESS_MODE_WRAP, true},
                        Case{"mirror, normalized", CU_TR_ADDRESS_MODE_MIRROR, true}}) {
    TextureObject texture(resource(array.handle),
                          description(c.mode, CU_TR_FILTER_MODE_LINEAR,
                                      c.normalized ? CU_TRSF_NORMALIZED_COORDINATES : 0));
    e2e::Random random(17);
    std::vector<Vector> points(2000);
    for (Vector& p : points) {
      p = {(random.unit() * 3 - 1) * kWidth, (random.unit() * 3 - 1) * kHeight, 0, 0};
      if (c.normalized) p.x /= kWidth, p.y /= kHeight;
    }
    const std::vector<Vector> got = kernels.run("fetch_2d", texture.handle, points);
    double worst = 0;
    for (size_t i = 0; i < points.size(); i++) {
      const double x = c.normalized ? double{points[i].x} * kWidth : points[i].x;
      const double y = c.normalized ? double{points[i].y} * kHeight : points[i].y;
      worst = std::max(
          worst, std::fabs(reference(image, kWidth, kHeight, x, y, c.mode) - double{got[i].x}));
    }
    printf("# %s: largest difference %g\n", c.name, worst);
    e2e::expect(worst < kTolerance, "linear filtering, %s", c.name);
  }
}

// Nearest-point sampling, at places that are not near the edges between texels.
void points(const Kernels& kernels) {
  constexpr int kWidth = 16, kHeight = 8, kDepth = 4;
  const std::vector<float> image = noise(kWidth * kHeight * kDepth, 4);
  std::vector<Vector> at;
  for (int z = 0; z < kDepth; z++) {
    for (int y = 0; y < kHeight; y++) {
      for (int x = 0; x < kWidth; x++) {
        at.push_back({static_cast<float>(x) + 0.3f, static_cast<float>(y) + 0.7f,
                      static_cast<float>(z) + 0.5f, 0});
      }
    }
  }
  const auto same = [&](const std::vector<Vector>& got) {
    for (size_t i = 0; i < got.size(); i++) {
      if (got[i].x != image[i]) return false;
    }
    return true;
  };
  const CUDA_TEXTURE_DESC d = description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  {
    Array array(shape(kWidth, kHeight, kDepth, CU_AD_FORMAT_FLOAT, 1));
    put(array.handle, image.data(), kWidth * 4, kHeight, kDepth);
    TextureObject texture(resource(array.handle), d);
    e2e::expect(same(kernels.run("fetch_3d", texture.handle, at)), "nearest point in 3D");
  }
  {
    Array array(shape(kWidth, kHeight, kDepth, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED));
    put(array.handle, image.data(), kWidth * 4, kHeight, kDepth);
    TextureObject texture(resource(array.handle), d);
    e2e::expect(same(kernels.run("fetch_layered", texture.handle, at)), "nearest point in layers");
  }
}

void linear_memory(const Kernels& kernels) {
  constexpr size_t kCount = 5000;
  const std::vector<float> data = noise(4 * kCount, 5);
  e2e::Buffer<float> buffer(data);
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_LINEAR;
  r.res.linear.devPtr = buffer.address;
  r.res.linear.format = CU_AD_FORMAT_FLOAT;
  r.res.linear.numChannels = 4;
  r.res.linear.sizeInBytes = buffer.bytes();
  CUDA_TEXTURE_DESC d{};
  TextureObject texture(r, d);
  std::vector<Vector> at(kCount);
  for (size_t i = 0; i < kCount; i++) at[i].x = static_cast<float>((i * 7919) % kCount);
  const std::vector<Vector> got = kernels.run("fetch_index", texture.handle, at);
  bool good = true;
  for (size_t i = 0; i < kCount; i++) {
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bit for bit
    good = good && memcmp(&got[i], &data[4 * ((i * 7919) % kCount)], 16) == 0;
  }
  e2e::expect(good, "linear memory by index");
  CUDA_RESOURCE_DESC read_back{};
  CHECK_CU(cuTexObjectGetResourceDesc(&read_back, texture.handle));
  e2e::expect(read_back.resType == CU_RESOURCE_TYPE_LINEAR &&
                  read_back.res.linear.devPtr == buffer.address &&
                  read_back.res.linear.sizeInBytes == buffer.bytes(),
              "the resource of a texture object");
}

void pitched_memory(const Kernels& kernels) {
  constexpr int kWidth = 45, kHeight = 21;
  const std::vector<float> image = noise(kWidth * kHeight, 6);
  CUdeviceptr memory = 0;
  size_t pitch = 0;
  CHECK_CU(cuMemAllocPitch_v2(&memory, &pitch, kWidth * 4, kHeight, 4));
  CUDA_MEMCPY2D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = image.data();
  box.srcPitch = kWidth * 4;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = memory;
  box.dstPitch = pitch;
  box.WidthInBytes = kWidth * 4;
  box.Height = kHeight;
  CHECK_CU(cuMemcpy2D_v2(&box));
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_PITCH2D;
  r.res.pitch2D.devPtr = memory;
  r.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
  r.res.pitch2D.numChannels = 1;
  r.res.pitch2D.width = kWidth;
  r.res.pitch2D.height = kHeight;
  r.res.pitch2D.pitchInBytes = pitch;
  {
    TextureObject texture(r, description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0));
    e2e::Random random(5);
    std::vector<Vector> at(1000);
    for (Vector& p : at) p = {random.unit() * kWidth, random.unit() * kHeight, 0, 0};
    const std::vector<Vector> got = kernels.run("fetch_2d", texture.handle, at);
    double worst = 0;
    for (size_t i = 0; i < at.size(); i++) {
      worst = std::max(worst, std::fabs(reference(image, kWidth, kHeight, at[i].x, at[i].y,
                                                  CU_TR_ADDRESS_MODE_CLAMP) -
                                        double{got[i].x}));
    }
    printf("# pitched: largest difference %g\n", worst);
    e2e::expect(worst < kTolerance, "linear filtering of pitched memory");
  }
  CHECK_CU(cuMemFree_v2(memory));
}

void formats(const Kernels& kernels) {
  std::vector<Vector> at;
  for (int x = 0; x < 64; x++) at.push_back({static_cast<float>(x) + 0.5f, 0.5f, 0, 0});
  const CUDA_TEXTURE_DESC as_number =
      description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  const CUDA_TEXTURE_DESC as_integer =
      description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  {
    std::vector<unsigned char> image(64 * 4);
    for (size_t i = 0; i < image.size(); i++) image[i] = static_cast<unsigned char>(i);
    Array array(shape(64, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4));
    put(array.handle, image.data(), image.size(), 1, 1);
    TextureObject numbers(resource(array.handle), as_number);
    bool good = true;
    std::vector<Vector> got = kernels.run("fetch_2d", numbers.handle, at);
    for (size_t i = 0; i < image.size(); i++) {
      good = good && std::fabs((&got[i / 4].x)[i % 4] - static_cast<float>(i) / 255) < 1e-6f;
    }
    e2e::expect(good, "bytes as numbers from 0 to 1");
    TextureObject integers(resource(array.handle), as_integer);
    got = kernels.run("fetch_u32", integers.handle, at);
    good = true;
    for (size_t i = 0; i < image.size(); i++) {
      uint32_t value = 0;
      memcpy(&value, &got[i / 4].x + i % 4, 4);
      good = good && value == i;
    }
    e2e::expect(good, "bytes as integers");
  }
  {
    std::vector<int16_t> image(64 * 2);
    for (size_t i = 0; i < image.size(); i++) {
      image[i] = static_cast<int16_t>(static_cast<int>(i) * 511 - 32768);
    }
    Array array(shape(64, 1, 0, CU_AD_FORMAT_SIGNED_INT16, 2));
    put(array.handle, image.data(), image.size() * 2, 1, 1);
    TextureObject numbers(resource(array.handle), as_number);
    bool good = true;
    std::vector<Vector> got = kernels.run("fetch_2d", numbers.handle, at);
    for (size_t i = 0; i < image.size(); i++) {
      const float want = std::max(static_cast<float>(image[i]) / 32767, -1.0f);
      good = good && std::fabs((&got[i / 2].x)[i % 2] - want) < 1e-6f;
    }
    e2e::expect(good, "signed integers of 16 bits as numbers from -1 to 1");
    TextureObject integers(resource(array.handle), as_integer);
    got = kernels.run("fetch_s32", integers.handle, at);
    good = true;
    for (size_t i = 0; i < image.size(); i++) {
      int32_t value = 0;
      memcpy(&value, &got[i / 2].x + i % 2, 4);
      good = good && value == image[i];
    }
    e2e::expect(good, "signed integers of 16 bits");
  }
  {
    const uint16_t halves[] = {0x0000, 0x3c00, 0xbc00, 0x3800, 0x7bff, 0x0001, 0xc000, 0x4248};
    const float numbers[] = {0, 1, -1, 0.5f, 65504, 5.9604644775390625e-8f, -2, 3.140625f};
    Array array(shape(8, 1, 0, CU_AD_FORMAT_HALF, 1));
    put(array.handle, halves, sizeof halves, 1, 1);
    TextureObject texture(resource(array.handle), as_number);
    const std::vector<Vector> got = kernels.run("fetch_2d", texture.handle, at);
    bool good = true;
    for (size_t i = 0; i < 8; i++) good = good && got[i].x == numbers[i];
    e2e::expect(good, "half precision");
  }
}

void levels(const Kernels& kernels) {
  const CUDA_ARRAY3D_DESCRIPTOR d = shape(32, 16, 0, CU_AD_FORMAT_FLOAT, 1);
  CUmipmappedArray array = nullptr;
  CHECK_CU(cuMipmappedArrayCreate(&array, &d, 4));
  bool good = true;
  for (unsigned level = 0; level < 4; level++) {
    CUarray one = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR size{};
    CHECK_CU(cuMipmappedArrayGetLevel(&one, array, level));
    CHECK_CU(cuArray3DGetDescriptor_v2(&size, one));
    good = good && size.Width == 32u >> level && size.Height == 16u >> level;
    const std::vector<float> image((32u >> level) * (16u >> level), static_cast<float>(level + 1));
    put(one, image.data(), (32u >> level) * 4, 16u >> level, 1);
  }
  e2e::expect(good, "sizes of levels");
  CUarray none = nullptr;
  e2e::expect_result("a level that is not there", cuMipmappedArrayGetLevel(&none, array, 4),
                     CUDA_ERROR_INVALID_VALUE);
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  r.res.mipmap.hMipmappedArray = array;
  CUDA_TEXTURE_DESC t = description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR,
                                    CU_TRSF_NORMALIZED_COORDINATES);
  t.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR;
  t.maxMipmapLevelClamp = 3;
  {
    TextureObject texture(r, t);
    std::vector<Vector> at;
    for (int i = 0; i <= 24; i++) at.push_back({0.4f, 0.6f, static_cast<float>(i) / 8, 0});
    const std::vector<Vector> got = kernels.run("fetch_level", texture.handle, at);
    double worst = 0;
    for (size_t i = 0; i < at.size(); i++) {
      worst = std::max(worst, std::fabs(double{got[i].x} - (1 + double{at[i].z})));
    }
    printf("# levels: largest difference %g\n", worst);
    e2e::expect(worst < kTolerance, "linear filtering between levels");
  }
  CHECK_CU(cuMipmappedArrayDestroy(array));
}

void gathering(const Kernels& kernels) {
  constexpr int kWidth = 8, kHeight = 6;
  std::vector<float> image(kWidth * kHeight * 2);
  for (int i = 0; i < kWidth * kHeight; i++) image[2 * i + 1] = static_cast<float>(i);
  Array array(shape(kWidth, kHeight, 0, CU_AD_FORMAT_FLOAT, 2, CUDA_ARRAY3D_TEXTURE_GATHER));
  put(array.handle, image.data(), kWidth * 8, kHeight, 1);
  TextureObject texture(resource(array.handle),
                        description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const std::vector<Vector> got =
      kernels.run("gather_green", texture.handle, {{3.0f, 2.0f, 0, 0}, {5.2f, 4.1f, 0, 0}});
  const auto is = [&](const Vector& v, int x, int y) {
    const auto texel = [&](int i, int j) { return static_cast<float>(j * kWidth + i); };
    return v.x == texel(x, y + 1) && v.y == texel(x + 1, y + 1) && v.z == texel(x + 1, y) &&
           v.w == texel(x, y);
  };
  e2e::expect(is(got[0], 2, 1) && is(got[1], 4, 3), "four texels of one channel");
}

// ---- Surfaces -----------------------------------------------------------------------------------

void surfaces(const Kernels& kernels) {
  constexpr int kWidth = 24, kHeight = 10, kDepth = 3;
  {
    Array array(shape(kWidth, kHeight, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST));
    SurfaceObject surface(array.handle);
    std::vector<Vector> at;
    for (int y = 0; y < kHeight; y++) {
      for (int x = 0; x < kWidth; x++) {
        at.push_back(
            {static_cast<float>(x), static_cast<float>(y), static_cast<float>(100 * y + x), 0});
      }
    }
    kernels.run("store_2d", surface.handle, at);
    std::vector<float> out(kWidth * kHeight);
    get(array.handle, out.data(), kWidth * 4, kHeight, 1);
    bool good = true;
    for (size_t i = 0; i < out.size(); i++) good = good && out[i] == at[i].z;
    e2e::expect(good, "a kernel writes a surface");
    // Stores outside are dropped, loads outside are clamped or zero.
    kernels.run("store_2d_zero", surface.handle,
                {{-1, 3, -5, 0}, {kWidth, 3, -5, 0}, {2, kHeight, -5, 0}, {4, 4, -6, 0}});
    const std::vector<Vector> clamped =
        kernels.run("load_2d_clamp", surface.handle, {{-3, 2, 0, 0}, {99, 99, 0, 0}, {4, 4, 0, 0}});
    const std::vector<Vector> zero =
        kernels.run("load_2d_zero", surface.handle, {{-3, 2, 0, 0}, {99, 99, 0, 0}, {5, 4, 0, 0}});
    e2e::expect(clamped[0].x == 200 && clamped[1].x == 100 * (kHeight - 1) + kWidth - 1 &&
                    clamped[2].x == -6,
                "surface loads that are clamped");
    e2e::expect(zero[0].x == 0 && zero[1].x == 0 && zero[2].x == 405,
                "surface accesses outside that give zero");
    // Reads the same array through a texture.
    TextureObject texture(resource(array.handle),
                          description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
    const std::vector<Vector> seen = kernels.run("fetch_2d", texture.handle, {{7.5f, 6.5f, 0, 0}});
    e2e::expect(seen[0].x == 607, "what a surface wrote, seen through a texture");
    CUDA_RESOURCE_DESC r{};
    CHECK_CU(cuSurfObjectGetResourceDesc(&r, surface.handle));
    e2e::expect(r.resType == CU_RESOURCE_TYPE_ARRAY && r.res.array.hArray == array.handle,
                "the resource of a surface object");
  }
  for (const bool layered : {false, true}) {
    const unsigned channels = layered ? 2 : 1;
    Array array(shape(kWidth, kHeight, kDepth, CU_AD_FORMAT_FLOAT, channels,
                      CUDA_ARRAY3D_SURFACE_LDST | (layered ? CUDA_ARRAY3D_LAYERED : 0)));
    SurfaceObject surface(array.handle);
    std::vector<Vector> at;
    for (int z = 0; z < kDepth; z++) {
      for (int y = 0; y < kHeight; y++) {
        for (int x = 0; x < kWidth; x++) {
          at.push_back({static_cast<float>(x), static_cast<float>(y), static_cast<float>(z),
                        static_cast<float>(1000 * z + 100 * y + x)});
        }
      }
    }
    kernels.run(layered ? "store_layered" : "store_3d", surface.handle, at);
    std::vector<float> out(at.size() * channels);
    get(array.handle, out.data(), kWidth * 4 * channels, kHeight, kDepth);
    bool good = true;
    for (size_t i = 0; i < at.size(); i++) {
      good = good && out[channels * i + channels - 1] == at[i].w &&
             (!layered || out[channels * i] == at[i].z);
    }
    e2e::expect(good, "a kernel writes a surface %s", layered ? "of layers" : "in 3D");
  }
  {
    std::vector<unsigned char> image(64);
    for (size_t i = 0; i < image.size(); i++) image[i] = static_cast<unsigned char>(3 * i);
    Array array(shape(16, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_SURFACE_LDST));
    put(array.handle, image.data(), image.size(), 1, 1);
    SurfaceObject surface(array.handle);
    const std::vector<Vector> got =
        kernels.run("load_1d_bytes", surface.handle, {{0, 0, 0, 0}, {60, 0, 0, 0}});
    e2e::expect(got[0].y == 3 && got[1].x == 180 && got[1].w == 189, "bytes of a surface");
  }
}

// ---- Lifetimes ----------------------------------------------------------------------------------

// An object is destroyed before a kernel that was launched earlier has used it.
void destroyed_early(const Kernels& kernels) {
  constexpr int kSize = 8;
  // The array is created without the flag for surfaces, which the driver API does not require.
  Array array(shape(kSize, kSize, 0, CU_AD_FORMAT_FLOAT, 1));
  std::vector<float> image(kSize * kSize);
  for (size_t i = 0; i < image.size(); i++) image[i] = static_cast<float>(i);
  put(array.handle, image.data(), kSize * 4, kSize, 1);
  const CUDA_RESOURCE_DESC r = resource(array.handle);
  const CUDA_TEXTURE_DESC d = description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  CHECK_CU(cuTexObjectCreate(&texture, &r, &d, nullptr));
  CHECK_CU(cuSurfObjectCreate(&surface, &r));
  void* word = nullptr;
  CUdeviceptr word_address = 0;
  CHECK_CU(cuMemHostAlloc(&word, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK_CU(cuMemHostGetDevicePointer_v2(&word_address, word, 0));
  auto* go = static_cast<uint32_t*>(word);
  *go = 0;
  std::vector<Vector> in = {{3, 2, 0, 0}, {}};
  memcpy(&in[1], &word_address, sizeof word_address);
  e2e::Buffer<Vector> from(in);
  e2e::Buffer<Vector> fetched(1), loaded(1);
  CUfunction fetch_late = nullptr, load_late = nullptr;
  CHECK_CU(cuModuleGetFunction(&fetch_late, kernels.module, "fetch_2d_late"));
  CHECK_CU(cuModuleGetFunction(&load_late, kernels.module, "load_2d_late"));
  e2e::launch(fetch_late, 1, 1, 0, nullptr, texture, from.address, fetched.address, 1u);
  e2e::launch(load_late, 1, 1, 0, nullptr, surface, from.address, loaded.address, 1u);
  CHECK_CU(cuTexObjectDestroy(texture));
  CHECK_CU(cuSurfObjectDestroy(surface));
  __atomic_store_n(go, 1, __ATOMIC_RELEASE);
  CHECK_CU(cuCtxSynchronize());
  e2e::expect(fetched.get()[0].x == 19, "a texture object destroyed after the launch");
  e2e::expect(loaded.get()[0].x == 19, "a surface object destroyed after the launch");
  CHECK_CU(cuMemFreeHost(word));
  e2e::expect_result("destroying no texture object", cuTexObjectDestroy(0), CUDA_SUCCESS);
  e2e::expect_result("destroying no surface object", cuSurfObjectDestroy(0), CUDA_SUCCESS);
}

// ---- Refusals -----------------------------------------------------------------------------------

void refusals() {
  CUarray array = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR bad = shape(0, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  e2e::expect_result("an array without width", cuArray3DCreate_v2(&array, &bad),
                     CUDA_ERROR_INVALID_VALUE);
  bad = shape(8, 8, 0, CU_AD_FORMAT_FLOAT, 3);
  e2e::expect_result("three channels", cuArray3DCreate_v2(&array, &bad), CUDA_ERROR_INVALID_VALUE);
  bad = shape(8, 8, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
  e2e::expect_result("a cube with five faces", cuArray3DCreate_v2(&array, &bad),
                     CUDA_ERROR_INVALID_VALUE);
  CUtexObject texture = 0;
  CUDA_RESOURCE_DESC r = resource(nullptr);
  const CUDA_TEXTURE_DESC t = description(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  e2e::expect_result("a texture of no array", cuTexObjectCreate(&texture, &r, &t, nullptr),
                     {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  {
    Array plain(shape(8, 8, 0, CU_AD_FORMAT_FLOAT, 1));
    CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
    e2e::expect_result("sparse properties of an ordinary array",
                       cuArrayGetSparseProperties(&sparse, plain.handle), CUDA_ERROR_INVALID_VALUE);
    CUarray plane = nullptr;
    e2e::expect_result("a plane of an ordinary array", cuArrayGetPlane(&plane, plain.handle, 0),
                       CUDA_ERROR_INVALID_VALUE);
  }
  CUDA_ARRAY3D_DESCRIPTOR huge = shape(16384, 16384, 16384, CU_AD_FORMAT_FLOAT, 4);
  e2e::expect_result("an array larger than the device", cuArray3DCreate_v2(&array, &huge),
                     {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE});
}

void memory_returns() {
  CHECK_CU(cuCtxSynchronize());
  size_t before = 0, after = 0, total = 0;
  CHECK_CU(cuMemGetInfo_v2(&before, &total));
  for (int i = 0; i < 20; i++) {
    Array array(shape(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4));
    size_t during = 0;
    CHECK_CU(cuMemGetInfo_v2(&during, &total));
    if (during >= before) e2e::expect(false, "an array takes memory");
  }
  CHECK_CU(cuMemGetInfo_v2(&after, &total));
  e2e::expect(after == before, "the memory of arrays comes back");
}

}  // namespace

int main(int argc, char** argv) {
  e2e::Session session;
  if (argc > 1 && strcmp(argv[1], "lifetimes") == 0) {
    Kernels kernels;
    destroyed_early(kernels);
  } else {
    Kernels kernels;
    descriptors();
    rows_of_an_array();
    rectangles();
    boxes("1D", 500, 0, 0, 0);
    boxes("2D", 100, 60, 0, 0);
    boxes("3D", 40, 30, 7, 0);
    boxes("layers", 33, 12, 5, CUDA_ARRAY3D_LAYERED);
    boxes("large", 1500, 900, 0, 0);
    filtering(kernels);
    points(kernels);
    linear_memory(kernels);
    pitched_memory(kernels);
    formats(kernels);
    levels(kernels);
    gathering(kernels);
    surfaces(kernels);
    refusals();
    memory_returns();
  }
  return e2e::finish();
}
