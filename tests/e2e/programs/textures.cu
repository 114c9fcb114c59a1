// SPDX-License-Identifier: Apache-2.0
// cudaArray with texture and surface objects in CUDA C++: linear filtering, a linear buffer,
// layers, and a kernel that writes to a surface which the next one reads as a texture. Run by
// run_e2e.py. usage: textures [WIDTH HEIGHT]
#include <cmath>
#include <vector>

#include "e2e.h"

// The error of two weights with 8 fractional bits, for texels of 0 to 1.
constexpr double kTolerance = 2.0 / 256;

__global__ void sample(cudaTextureObject_t texture, float* out, int width, int height, float dx,
                       float dy) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  out[y * width + x] = tex2D<float>(texture, x + dx, y + dy);
}

__global__ void fetch(cudaTextureObject_t texture, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float2 pair = tex1Dfetch<float2>(texture, n - 1 - i);
  out[i] = pair.x + 2 * pair.y;
}

__global__ void sum_layers(cudaTextureObject_t texture, float* out, int width, int height,
                           int layers) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0;
  for (int layer = 0; layer < layers; layer++) {
    sum += tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, layer) * (1 << layer);
  }
  out[y * width + x] = sum;
}

__global__ void paint(cudaSurfaceObject_t surface, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  surf2Dwrite(make_uchar4(x & 255, y & 255, (x ^ y) & 255, 255), surface, x * 4, y);
}

__global__ void invert(cudaSurfaceObject_t surface, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  uchar4 texel = surf2Dread<uchar4>(surface, x * 4, y, cudaBoundaryModeTrap);
  texel.x = 255 - texel.x;
  surf2Dwrite(texel, surface, x * 4, y);
}

__global__ void as_numbers(cudaTextureObject_t texture, float4* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) out[y * width + x] = tex2D<float4>(texture, x + 0.5f, y + 0.5f);
}

static const dim3 kBlock(16, 8);
static dim3 grid_for(int width, int height) {
  return dim3(e2e::blocks_for(width, 16), e2e::blocks_for(height, 8));
}

static std::vector<float> noise(size_t n, uint64_t seed) {
  std::vector<float> data(n);
  e2e::Random random(seed);
  for (float& value : data) value = random.unit();
  return data;
}

static double reference(const std::vector<float>& image, int width, int height, double x,
                        double y) {
  const double u = x - 0.5, v = y - 0.5;
  const int i = static_cast<int>(floor(u)), j = static_cast<int>(floor(v));
  const double a = u - i, b = v - j;
  auto at = [&](int px, int py) -> double {
    px = px < 0 ? 0 : px >= width ? width - 1 : px;
    py = py < 0 ? 0 : py >= height ? height - 1 : py;
    return image[size_t(py) * width + px];
  };
  return (1 - a) * (1 - b) * at(i, j) + a * (1 - b) * at(i + 1, j) + (1 - a) * b * at(i, j + 1) +
         a * b * at(i + 1, j + 1);
}

static void linear_filter(int width, int height) {
  const std::vector<float> image = noise(size_t(width) * height, 1);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK_CUDA(cudaMallocArray(&array, &format, width, height));
  CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * sizeof(float),
                                 width * sizeof(float), height, cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc description{};
  description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
  description.filterMode = cudaFilterModeLinear;
  description.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  float* out;
  CHECK_CUDA(cudaMalloc(&out, image.size() * sizeof(float)));
  std::vector<float> got(image.size());
  double worst = 0;
  for (const float d : {0.0f, 0.5f, 0.8125f, -1.3f}) {
    sample<<<grid_for(width, height), kBlock>>>(texture, out, width, height, d, 0.5f - d);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(got.data(), out, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++) {
      for (int x = 0; x < width; x++) {
        worst = fmax(worst, fabs(reference(image, width, height, x + d, y + 0.5 - d) -
                                 got[size_t(y) * width + x]));
      }
    }
  }
  printf("# largest difference %g\n", worst);
  e2e::expect(worst < kTolerance, "linear filtering of an array");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFree(out));
  CHECK_CUDA(cudaFreeArray(array));
}

static void linear_buffer() {
  constexpr int kCount = 10000;
  const std::vector<float> data = noise(2 * kCount, 2);
  float *in, *out;
  CHECK_CUDA(cudaMalloc(&in, data.size() * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&out, kCount * sizeof(float)));
  CHECK_CUDA(cudaMemcpy(in, data.data(), data.size() * sizeof(float), cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = in;
  resource.res.linear.desc = cudaCreateChannelDesc<float2>();
  resource.res.linear.sizeInBytes = data.size() * sizeof(float);
  cudaTextureDesc description{};
  cudaTextureObject_t texture;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  fetch<<<e2e::blocks_for(kCount, 128), 128>>>(texture, out, kCount);
  std::vector<float> got(kCount);
  CHECK_CUDA(cudaMemcpy(got.data(), out, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
  bool good = true;
  for (int i = 0; i < kCount; i++) {
    const int from = kCount - 1 - i;
    good = good && got[i] == data[2 * from] + 2 * data[2 * from + 1];
  }
  e2e::expect(good, "fetches from linear memory");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFree(in));
  CHECK_CUDA(cudaFree(out));
}

static void layers() {
  constexpr int kWidth = 50, kHeight = 20, kLayers = 4;
  std::vector<float> image(kWidth * kHeight * kLayers);
  for (size_t i = 0; i < image.size(); i++) image[i] = static_cast<float>(i % 97);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(kWidth, kHeight, kLayers),
                               cudaArrayLayered));
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(image.data(), kWidth * sizeof(float), kWidth, kHeight);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(kWidth, kHeight, kLayers);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK_CUDA(cudaMemcpy3D(&copy));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc description{};
  description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
  cudaTextureObject_t texture;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  float* out;
  std::vector<float> got(kWidth * kHeight);
  CHECK_CUDA(cudaMalloc(&out, got.size() * sizeof(float)));
  sum_layers<<<grid_for(kWidth, kHeight), kBlock>>>(texture, out, kWidth, kHeight, kLayers);
  CHECK_CUDA(cudaMemcpy(got.data(), out, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
  bool good = true;
  for (size_t i = 0; i < got.size(); i++) {
    float sum = 0;
    for (int layer = 0; layer < kLayers; layer++) {
      sum += image[layer * got.size() + i] * static_cast<float>(1 << layer);
    }
    good = good && got[i] == sum;
  }
  e2e::expect(good, "layers of an array");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaFree(out));
  CHECK_CUDA(cudaFreeArray(array));
}

static void surface(int width, int height) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
  cudaArray_t array;
  CHECK_CUDA(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
  paint<<<grid_for(width, height), kBlock>>>(surface, width, height);
  invert<<<grid_for(width, height), kBlock>>>(surface, width, height);
  std::vector<uchar4> got(size_t(width) * height);
  CHECK_CUDA(cudaMemcpy2DFromArray(got.data(), width * 4, array, 0, 0, width * 4, height,
                                   cudaMemcpyDeviceToHost));
  bool good = true;
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) {
      const uchar4 texel = got[size_t(y) * width + x];
      good = good && texel.x == 255 - (x & 255) && texel.y == (y & 255) &&
             texel.z == ((x ^ y) & 255) && texel.w == 255;
    }
  }
  e2e::expect(good, "kernels read and write a surface");

  cudaTextureDesc description{};
  description.readMode = cudaReadModeNormalizedFloat;
  description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
  cudaTextureObject_t texture;
  CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  float4* out;
  std::vector<float4> numbers(got.size());
  CHECK_CUDA(cudaMalloc(&out, numbers.size() * sizeof(float4)));
  as_numbers<<<grid_for(width, height), kBlock>>>(texture, out, width, height);
  CHECK_CUDA(
      cudaMemcpy(numbers.data(), out, numbers.size() * sizeof(float4), cudaMemcpyDeviceToHost));
  good = true;
  for (size_t i = 0; i < got.size(); i++) {
    good = good && fabsf(numbers[i].x - got[i].x / 255.0f) < 1e-6f &&
           fabsf(numbers[i].z - got[i].z / 255.0f) < 1e-6f && numbers[i].w == 1;
  }
  e2e::expect(good, "a surface seen through a texture, as numbers");
  CHECK_CUDA(cudaDestroyTextureObject(texture));
  CHECK_CUDA(cudaDestroySurfaceObject(surface));
  CHECK_CUDA(cudaFree(out));
  CHECK_CUDA(cudaFreeArray(array));
}

int main(int argc, char** argv) {
  const int width = static_cast<int>(e2e::argument(argc, argv, 1, 150));
  const int height = static_cast<int>(e2e::argument(argc, argv, 2, 90));
  linear_filter(width, height);
  linear_buffer();
  layers();
  surface(width, height);
  return e2e::finish();
}
