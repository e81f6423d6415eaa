#include "kernels/cuda/product.h"

#include <algorithm>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/library_check.h"

namespace mt::kernels::cuda {
namespace {

constexpr int kMaxCandidates = 32;

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      CHECK(false) << "products on a GPU take f32, bf16 and f16, not " << Name(dtype);
  }
  return CUDA_R_32F;
}

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluAuxBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGrad:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool HasBias(Epilogue e) { return e == Epilogue::kBias || e == Epilogue::kGeluAuxBias; }
bool HasAux(Epilogue e) { return e != Epilogue::kNone && e != Epilogue::kBias; }

// The descriptors of one call, on the stack.
struct Descriptors {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, d;

  Descriptors(const ProductKey& key, const ProductOperands& operands) {
    CUBLAS_CHECK(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(key.epilogue));
    if (HasBias(key.epilogue)) {
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(key.out));
    }
    if (HasAux(key.epilogue)) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.m);
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, TypeOf(key.out));
    }
    SetLayout(&a, key.in, key.transpose_a, key.m, key.k);
    SetLayout(&b, key.in, key.transpose_b, key.k, key.n);
    SetLayout(&d, key.out, false, key.m, key.n);
  }

  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof(value)));
  }
  static void SetLayout(cublasLtMatrixLayoutOpaque_t* layout, DType dtype, bool transposed,
                        int64_t rows, int64_t columns) {
    if (transposed) std::swap(rows, columns);
    CUBLAS_CHECK(cublasLtMatrixLayoutInit(layout, TypeOf(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), rows));
  }
};

// The heuristic's candidates. Partial sums of split products are joined in fp32, never rounded to
// 16 bits on the way: in place only where the output is f32 itself.
struct Candidates {
  // (A vector of this unnamed struct crashes nvcc 13.0; an array serves.)
  std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> results{};
  int count = 0;

  Candidates(cublasLtHandle_t handle, const ProductKey& key, Descriptors* descriptors) {
    cublasLtMatmulPreferenceOpaque_t preference;
    CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      CUBLAS_CHECK(
          cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductWorkspaceBytes));
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (key.out == DType::kF32) reductions |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    const auto alignment = static_cast<uint32_t>(key.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, &descriptors->product, &descriptors->a, &descriptors->b, &descriptors->d,
        &descriptors->d, &preference, kMaxCandidates, results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      count = 0;
    } else if (status != CUBLAS_STATUS_SUCCESS) {
      ThrowCublasError(status, "cublasLtMatmulAlgoGetHeuristic");
    }
  }
};

void DestroyEvents(std::array<cudaEvent_t, 2>* events) {
  for (cudaEvent_t event : *events) cudaEventDestroy(event);
  delete events;
}

}  // namespace

TuningRun::TuningRun(const DeviceLimits& limits)
    : device_(limits),
      stream_(limits.ordinal, StreamPriority::kLow),
      events_(new std::array<cudaEvent_t, 2>{}, &DestroyEvents) {
  for (cudaEvent_t& event : *events_) CUDA_CHECK(cudaEventCreate(&event));
}

void* TuningRun::Random(DType dtype, int64_t elements) {
  CHECK_LT(num_buffers_, buffers_.size());
  auto& buffer = buffers_[num_buffers_++];
  buffer = device_.Allocate(elements * SizeOf(dtype), MemoryKind::kDevice);
  CudaRandom().FillNormal(
      stream_, {.key = num_buffers_, .std = 1, .out = {buffer->data(), dtype, {elements}}});
  return buffer->data();
}

void TuningRun::Begin() { CUDA_CHECK(cudaEventRecord((*events_)[0], stream_.raw())); }

double TuningRun::End() {
  CUDA_CHECK(cudaEventRecord((*events_)[1], stream_.raw()));
  CUDA_CHECK(cudaEventSynchronize((*events_)[1]));
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, (*events_)[0], (*events_)[1]));
  return static_cast<double>(ms) * 1000;
}

double TuningRun::Median(int count) {
  const auto middle = times_.begin() + count / 2;
  std::nth_element(times_.begin(), middle, times_.begin() + count);
  return *middle;
}

ProductTable::ProductTable(const DeviceLimits& limits) : limits_(limits) {
  BindDevice(limits_.ordinal);
  CUBLAS_CHECK(cublasLtCreate(&handle_));
}

ProductTable::~ProductTable() { cublasLtDestroy(handle_); }

ProductChoice ProductTable::Tune(const ProductKey& key) {
  BindDevice(limits_.ordinal);
  ProductOperands operands;
  Descriptors descriptors(key, operands);
  const Candidates candidates(handle_, key, &descriptors);
  if (candidates.count == 0) return {};
  TuningRun run(limits_);
  operands.a = run.Random(key.in, key.m * key.k);
  operands.b = run.Random(key.in, key.k * key.n);
  operands.d = run.Random(key.out, key.m * key.n);
  if (HasBias(key.epilogue)) operands.bias = run.Random(key.out, key.m);
  if (HasAux(key.epilogue)) operands.aux = run.Random(key.out, key.m * key.n);
  const Workspace workspace{run.Random(DType::kF32, kProductWorkspaceBytes / 4),
                            kProductWorkspaceBytes};
  ProductChoice best;
  for (int i = 0; i < candidates.count; ++i) {
    const auto& candidate = candidates.results[static_cast<size_t>(i)];
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    const double us = run.MedianUs(
        5, [&] { Enqueue(Raw(run.stream()), key, operands, candidate.algo, workspace); });
    if (!best.possible || us < best.us) {
      best = {.possible = true, .algorithm = candidate.algo, .us = us};
    }
  }
  return best;
}

void ProductTable::Enqueue(cudaStream_t stream, const ProductKey& key,
                           const ProductOperands& operands, const cublasLtMatmulAlgo_t& algorithm,
                           const Workspace& workspace) const {
  Descriptors descriptors(key, operands);
  const float alpha = 1, beta = key.add ? 1 : 0;
  CUBLAS_CHECK(cublasLtMatmul(handle_, &descriptors.product, &alpha, operands.a, &descriptors.a,
                              operands.b, &descriptors.b, &beta, operands.d, &descriptors.d,
                              operands.d, &descriptors.d, &algorithm, workspace.data,
                              static_cast<size_t>(workspace.bytes), stream));
}

const ProductChoice& ProductTable::Choose(const ProductKey& key) {
  const base::MutexLock lock(&mutex_);
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  return choices_.emplace(key, Tune(key)).first->second;
}

void ProductTable::Run(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
                       const Workspace& workspace) {
  const ProductChoice& choice = Choose(key);
  CHECK(choice.possible) << "cuBLASLt has no product of m " << key.m << " n " << key.n << " k "
                         << key.k;
  Enqueue(Raw(stream), key, operands, choice.algorithm, workspace);
}

bool ProductTable::Remember(const ProductKey& key, bool wins) {
  const base::MutexLock lock(&mutex_);
  remembered_[key] = wins;
  return wins;
}

int ProductTable::Remembered(const ProductKey& key) {
  const base::MutexLock lock(&mutex_);
  const auto found = remembered_.find(key);
  return found == remembered_.end() ? -1 : static_cast<int>(found->second);
}

}  // namespace mt::kernels::cuda
