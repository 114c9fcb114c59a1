// SPDX-License-Identifier: Apache-2.0
// Cube maps in CUDA C++: faces by direction, layers of cubes, mipmaps by level and by gradients,
// filtering in the middle of a face. Places are chosen on a face, well inside of a texel, and the
// direction is computed from them. Run by run_e2e.py. usage: cube_textures
#include <cmath>
#include <vector>

#include "e2e.h"

constexpr int kSize = 16, kFaces = 6, kCubes = 3;

struct Direction {
  float x, y, z;
};

__global__ void from_cube(cudaTextureObject_t texture, const Direction* to, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = texCubemap<float>(texture, to[i].x, to[i].y, to[i].z);
}

__global__ void from_layers(cudaTextureObject_t texture, const Direction* to, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = texCubemapLayered<float>(texture, to[i].x, to[i].y, to[i].z, i % kCubes);
}

__global__ void by_level(cudaTextureObject_t texture, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = texCubemapLod<float>(texture, 1, 0.1f, 0.2f, static_cast<float>(i));
}

// Fetches with gradients of 1, 2, 4, ... texels of the largest level.
__global__ void by_gradient(cudaTextureObject_t texture, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float step = static_cast<float>(1 << i) / kSize;
  out[i] = tex2DGrad<float>(texture, 0.5f, 0.5f, make_float2(step, 0), make_float2(0, step / 2));
}

namespace {

// The inverse of the table of cube maps in the programming guide.
Direction direction_of(int face, float s, float t, float length) {
  const float u = 2 * s - 1, v = 2 * t - 1;
  const Direction made[kFaces] = {{1, -v, -u}, {-1, -v, u}, {u, 1, v},
                                  {u, -1, -v}, {u, -v, 1},  {-u, -v, -1}};
  const Direction& d = made[face];
  return {d.x * length, d.y * length, d.z * length};
}

struct Places {
  std::vector<Direction> directions;
  std::vector<float> texels;  // numbered through all faces and cubes
};

Places places(int cubes) {
  Places made;
  e2e::Random random(11);
  int i = 0;
  for (int face = 0; face < kFaces; face++) {
    for (int y = 0; y < kSize; y++) {
      for (int x = 0; x < kSize; x++, i++) {
        const float s = (x + 0.25f + random.unit() / 2) / kSize;
        const float t = (y + 0.25f + random.unit() / 2) / kSize;
        made.directions.push_back(direction_of(face, s, t, 0.5f + 4 * random.unit()));
        const int plane = i % cubes * kFaces + face;
        made.texels.push_back(static_cast<float>((plane * kSize + y) * kSize + x));
      }
    }
  }
  return made;
}

cudaTextureObject_t texture_of(cudaArray_t array, cudaMipmappedArray_t levels,
                               cudaTextureFilterMode filter) {
  cudaResourceDesc resource{};
  resource.resType = levels ? cudaResourceTypeMipmappedArray : cudaResourceTypeArray;
  if (levels) {
    resource.res.mipmap.mipmap = levels;
  } else {
    resource.res.array.array = array;
  }
  cudaTextureDesc description{};
  for (cudaTextureAddressMode& mode : description.addressMode) mode = cudaAddressModeWrap;
  description.filterMode = description.mipmapFilterMode = filter;
  description.normalizedCoords = 1;
  description.maxMipmapLevelClamp = 16;
  cudaTextureObject_t texture = 0;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  return texture;
}

void fill(cudaArray_t array, const std::vector<float>& texels, int size, int planes) {
  cudaMemcpy3DParms copy{};
  copy.srcPtr =
      make_cudaPitchedPtr(const_cast<float*>(texels.data()), size * sizeof(float), size, size);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(size, size, planes);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK_CUDA(cudaMemcpy3D(&copy));
}

std::vector<float> numbered(int planes) {
  std::vector<float> texels(planes * kSize * kSize);
  for (size_t i = 0; i < texels.size(); i++) texels[i] = static_cast<float>(i);
  return texels;
}

struct Device {
  Direction* to = nullptr;
  float* out = nullptr;
  int count = 0;
  explicit Device(const std::vector<Direction>& directions)
      : count(static_cast<int>(directions.size())) {
    CHECK_CUDA(cudaMalloc(&to, count * sizeof(Direction)));
    CHECK_CUDA(cudaMalloc(&out, count * sizeof(float)));
    CHECK_CUDA(
        cudaMemcpy(to, directions.data(), count * sizeof(Direction), cudaMemcpyHostToDevice));
  }
  ~Device() {
    CHECK_CUDA(cudaFree(to));
    CHECK_CUDA(cudaFree(out));
  }
  std::vector<float> results() const {
    std::vector<float> got(count);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(got.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost));
    return got;
  }
};

void faces() {
  for (int cubes : {1, kCubes}) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    const unsigned flags = cudaArrayCubemap | (cubes > 1 ? cudaArrayLayered : 0);
    CHECK_CUDA(
        cudaMalloc3DArray(&array, &format, make_cudaExtent(kSize, kSize, kFaces * cubes), flags));
    fill(array, numbered(kFaces * cubes), kSize, kFaces * cubes);
    const cudaTextureObject_t texture = texture_of(array, nullptr, cudaFilterModePoint);
    const Places asked = places(cubes);
    const Device device(asked.directions);
    const unsigned blocks = e2e::blocks_for(device.count, 96);
    if (cubes == 1) {
      from_cube<<<blocks, 96>>>(texture, device.to, device.out, device.count);
    } else {
      from_layers<<<blocks, 96>>>(texture, device.to, device.out, device.count);
    }
    e2e::expect(device.results() == asked.texels, "every texel of %d cubes, by its direction",
                cubes);
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFreeArray(array));
  }
}

// The values of a face's texels are a linear function of the place, which linear filtering
// preserves.
void filtered() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  CHECK_CUDA(
      cudaMalloc3DArray(&array, &format, make_cudaExtent(kSize, kSize, kFaces), cudaArrayCubemap));
  std::vector<float> texels = numbered(kFaces);
  for (size_t i = 0; i < texels.size(); i++) {
    const int x = i % kSize, y = i / kSize % kSize;
    texels[i] = (x + 2 * y) / (3.0f * kSize);
  }
  fill(array, texels, kSize, kFaces);
  const cudaTextureObject_t texture = texture_of(array, nullptr, cudaFilterModeLinear);
  std::vector<Direction> directions;
  std::vector<double> wanted;
  e2e::Random random(12);
  for (int i = 0; i < 600; i++) {
    const float s = 0.1f + 0.8f * random.unit(), t = 0.1f + 0.8f * random.unit();
    directions.push_back(direction_of(i % kFaces, s, t, 2));
    wanted.push_back((s * kSize - 0.5 + 2 * (t * kSize - 0.5)) / (3.0 * kSize));
  }
  const Device device(directions);
  from_cube<<<e2e::blocks_for(device.count, 96), 96>>>(texture, device.to, device.out,
                                                       device.count);
  const std::vector<float> got = device.results();
  double worst = 0;
  for (size_t i = 0; i < got.size(); i++) worst = fmax(worst, fabs(got[i] - wanted[i]));
  printf("# largest difference %g\n", worst);
  e2e::expect(worst < 1.0 / 256, "filtering inside of a face");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeArray(array));
}

// A mipmapped array in which every texel has the number of its level.
cudaMipmappedArray_t numbered_levels(int planes, unsigned flags, unsigned count) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t levels = nullptr;
  CHECK_CUDA(cudaMallocMipmappedArray(&levels, &format, make_cudaExtent(kSize, kSize, planes),
                                      count, flags));
  for (unsigned i = 0; i < count; i++) {
    const int size = kSize >> i;
    cudaArray_t array = nullptr;
    CHECK_CUDA(cudaGetMipmappedArrayLevel(&array, levels, i));
    const std::vector<float> texels(size_t(size) * size * (planes ? planes : 1),
                                    static_cast<float>(i));
    fill(array, texels, size, planes ? planes : 1);
  }
  return levels;
}

void levels() {
  constexpr int kLevels = 4;
  const std::vector<float> each = {0, 1, 2, 3};
  const Device device(std::vector<Direction>(kLevels, Direction{}));
  cudaMipmappedArray_t cube = numbered_levels(kFaces, cudaArrayCubemap, kLevels);
  cudaTextureObject_t texture = texture_of(nullptr, cube, cudaFilterModePoint);
  by_level<<<1, 32>>>(texture, device.out, kLevels);
  e2e::expect(device.results() == each, "levels of a cube");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeMipmappedArray(cube));
  cudaMipmappedArray_t flat = numbered_levels(0, 0, kLevels);
  texture = texture_of(nullptr, flat, cudaFilterModePoint);
  by_gradient<<<1, 32>>>(texture, device.out, kLevels);
  e2e::expect(device.results() == each, "levels by gradients");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFreeMipmappedArray(flat));
}

}  // namespace

int main() {
  faces();
  filtered();
  levels();
  return e2e::finish();
}
