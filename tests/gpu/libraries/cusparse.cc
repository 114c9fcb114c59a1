// SPDX-License-Identifier: Apache-2.0
// cuSPARSE against the CPU: a sparse matrix in CSR and COO form times vectors and matrices,
// conversions. Run by tests/gpu/run_gpu.py.
#include <cusparse.h>

#include "library_test.h"

using namespace library_test;

namespace {

constexpr int kRows = 120, kColumns = 90, kWidth = 7;

cusparseHandle_t handle() {
  static cusparseHandle_t made = [] {
    cusparseHandle_t fresh;
    CHECK(cusparseCreate(&fresh));
    return fresh;
  }();
  return made;
}

// A matrix with about one non-zero element in seven: as CSR, as COO, and dense in column-major
// order.
struct Sparse {
  std::vector<int> starts{0}, rows, columns;
  std::vector<float> values, dense;

  Sparse() : dense(kRows * kColumns, 0.0F) {
    const auto random = numbers<float>(kRows * kColumns, 1);
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        const float number = random[row * kColumns + column];
        if (number < 0.7F) continue;
        rows.push_back(row);
        columns.push_back(column);
        values.push_back(number);
        dense[row + column * kRows] = number;
      }
      starts.push_back(static_cast<int>(values.size()));
    }
  }
  int count() const { return static_cast<int>(values.size()); }
};

// y = A x, A in the form that `describe` makes.
template <typename Describe>
void times_vector(const Sparse& a, Describe describe) {
  const auto x = numbers<float>(kColumns, 2);
  DeviceArray<float> dx(x), dy(kRows);
  cusparseSpMatDescr_t matrix = describe();
  cusparseDnVecDescr_t in, out;
  CHECK(cusparseCreateDnVec(&in, kColumns, dx.get(), CUDA_R_32F));
  CHECK(cusparseCreateDnVec(&out, kRows, dy.get(), CUDA_R_32F));
  const float one = 1, zero = 0;
  std::size_t size = 0;
  CHECK(cusparseSpMV_bufferSize(handle(), CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &zero,
                                out, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &size));
  DeviceArray<char> buffer(size + 1);
  CHECK(cusparseSpMV(handle(), CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &zero, out,
                     CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer.get()));
  close(dy.host(), product(a.dense, x, kRows, 1, kColumns), 1e-4, "A x");
  CHECK(cusparseDestroyDnVec(in));
  CHECK(cusparseDestroyDnVec(out));
  CHECK(cusparseDestroySpMat(matrix));
}

struct Csr {
  DeviceArray<int> starts, columns;
  DeviceArray<float> values;
  explicit Csr(const Sparse& a) : starts(a.starts), columns(a.columns), values(a.values) {}
  cusparseSpMatDescr_t describe(int count) const {
    cusparseSpMatDescr_t matrix;
    CHECK(cusparseCreateCsr(&matrix, kRows, kColumns, count, starts.get(), columns.get(),
                            values.get(), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    return matrix;
  }
};

void csr_times_vector() {
  const Sparse a;
  const Csr csr(a);
  times_vector(a, [&] { return csr.describe(a.count()); });
}

void coo_times_vector() {
  const Sparse a;
  DeviceArray<int> rows(a.rows), columns(a.columns);
  DeviceArray<float> values(a.values);
  times_vector(a, [&] {
    cusparseSpMatDescr_t matrix;
    CHECK(cusparseCreateCoo(&matrix, kRows, kColumns, a.count(), rows.get(), columns.get(),
                            values.get(), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                            CUDA_R_32F));
    return matrix;
  });
}

void csr_times_matrix() {
  const Sparse a;
  const Csr csr(a);
  const auto b = numbers<float>(kColumns * kWidth, 3);
  DeviceArray<float> db(b), dc(kRows * kWidth);
  cusparseSpMatDescr_t matrix = csr.describe(a.count());
  cusparseDnMatDescr_t in, out;
  CHECK(cusparseCreateDnMat(&in, kColumns, kWidth, kColumns, db.get(), CUDA_R_32F,
                            CUSPARSE_ORDER_COL));
  CHECK(cusparseCreateDnMat(&out, kRows, kWidth, kRows, dc.get(), CUDA_R_32F, CUSPARSE_ORDER_COL));
  const float one = 1, zero = 0;
  std::size_t size = 0;
  const auto plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  CHECK(cusparseSpMM_bufferSize(handle(), plain, plain, &one, matrix, in, &zero, out, CUDA_R_32F,
                                CUSPARSE_SPMM_ALG_DEFAULT, &size));
  DeviceArray<char> buffer(size + 1);
  CHECK(cusparseSpMM(handle(), plain, plain, &one, matrix, in, &zero, out, CUDA_R_32F,
                     CUSPARSE_SPMM_ALG_DEFAULT, buffer.get()));
  close(dc.host(), product(a.dense, b, kRows, kWidth, kColumns), 1e-4, "A B");
  CHECK(cusparseDestroyDnMat(in));
  CHECK(cusparseDestroyDnMat(out));
  CHECK(cusparseDestroySpMat(matrix));
}

void to_dense() {
  const Sparse a;
  const Csr csr(a);
  DeviceArray<float> dense(kRows * kColumns);
  cusparseSpMatDescr_t matrix = csr.describe(a.count());
  cusparseDnMatDescr_t out;
  CHECK(cusparseCreateDnMat(&out, kRows, kColumns, kRows, dense.get(), CUDA_R_32F,
                            CUSPARSE_ORDER_COL));
  std::size_t size = 0;
  CHECK(cusparseSparseToDense_bufferSize(handle(), matrix, out, CUSPARSE_SPARSETODENSE_ALG_DEFAULT,
                                         &size));
  DeviceArray<char> buffer(size + 1);
  CHECK(cusparseSparseToDense(handle(), matrix, out, CUSPARSE_SPARSETODENSE_ALG_DEFAULT,
                              buffer.get()));
  close(dense.host(), a.dense, 0, "dense");
  CHECK(cusparseDestroyDnMat(out));
  CHECK(cusparseDestroySpMat(matrix));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"csr_times_vector", csr_times_vector},
              {"coo_times_vector", coo_times_vector},
              {"csr_times_matrix", csr_times_matrix},
              {"to_dense", to_dense}});
}
