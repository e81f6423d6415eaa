// cuBLASLt descriptors are built on the stack for each call, so a CublasGemm object has no state
// but the handle. Candidates are collected by asking the heuristic several times, because one query
// returns few algorithms.
#include "kernels/cuda/gemm/cublas_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/device/library_check.h"

namespace mt::kernels::cuda {
namespace {

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
    case Epilogue::kGeluGradBias:
    case Epilogue::kSwigluAux:
    case Epilogue::kSwigluGrad:
      CHECK(false) << "cuBLASLt has no such epilogue";
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool HasBias(Epilogue e) { return e == Epilogue::kBias || e == Epilogue::kGeluAuxBias; }
bool HasAux(Epilogue e) {
  return e == Epilogue::kGeluAux || e == Epilogue::kGeluAuxBias || e == Epilogue::kGeluGrad;
}

// The descriptors of one call, on the stack. (cuBLASLt takes pointers to non-const descriptors.)
struct Descriptors {
  mutable cublasLtMatmulDescOpaque_t matmul;
  mutable cublasLtMatrixLayoutOpaque_t a, b, d;

  Descriptors(const GemmKey& key, const GemmOperands& operands) {
    CUBLAS_CHECK(cublasLtMatmulDescInit(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(key.epilogue));
    if (key.sms > 0) Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{key.sms});
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
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&matmul, attribute, &value, sizeof(value)));
  }
  static void SetLayout(cublasLtMatrixLayoutOpaque_t* layout, DType dtype, bool transposed,
                        int64_t rows, int64_t columns) {
    if (transposed) std::swap(rows, columns);
    CUBLAS_CHECK(cublasLtMatrixLayoutInit(layout, TypeOf(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), rows));
  }
};

constexpr int kMostAnswers = 64;  // algorithms per query

// Limits of what the heuristic may offer. Partial sums of split-K GEMMs are reduced in fp32 and
// never rounded to 16 bits before that: in place only if the output itself is f32.
struct Preference {
  mutable cublasLtMatmulPreferenceOpaque_t raw;

  Preference(const GemmKey& key, int64_t workspace_bytes) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&raw));
    Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (key.out == DType::kF32) reductions |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    const auto alignment = static_cast<uint32_t>(key.alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  }

  template <class T>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(&raw, attribute, &value, sizeof(value)));
  }
};

}  // namespace

CublasGemm::CublasGemm(const DeviceLimits& limits) : limits_(limits) {
  BindDevice(limits_.ordinal);
  CUBLAS_CHECK(cublasLtCreate(&handle_));
}

CublasGemm::~CublasGemm() { cublasLtDestroy(handle_); }

// One query of the heuristic: SMs to assume (0: as the key says) and bytes of workspace.
struct CublasGemm::Question {
  int sms = 0;
  int64_t workspace_bytes = kGemmWorkspaceBytes;
};

std::vector<GemmAlgorithm> CublasGemm::Candidates(const GemmKey& key) const {
  BindDevice(limits_.ordinal);
  std::vector<GemmAlgorithm> answers;
  Ask(key, {}, &answers);
  if (answers.empty()) return answers;
  Ask(key, {.workspace_bytes = 0}, &answers);
  // An algorithm offered for fewer SMs runs on all of them, too.
  const int sms = key.sms > 0 ? key.sms : limits_.num_sms;
  for (const int fewer : {sms - 4, sms - sms / 8, sms - sms / 4}) {
    if (fewer > 0) Ask(key, {.sms = fewer}, &answers);
  }
  return answers;
}

void CublasGemm::Ask(const GemmKey& key, const Question& question,
                     std::vector<GemmAlgorithm>* answers) const {
  GemmKey asked = key;
  if (question.sms > 0) asked.sms = question.sms;
  const Descriptors descriptors(asked, {});
  const Preference preference(key, question.workspace_bytes);
  std::array<cublasLtMatmulHeuristicResult_t, kMostAnswers> results{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &descriptors.matmul, &descriptors.a, &descriptors.b, &descriptors.d, &descriptors.d,
      &preference.raw, kMostAnswers, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  if (status != CUBLAS_STATUS_SUCCESS) {
    ThrowCublasError(status, "cublasLtMatmulAlgoGetHeuristic");
  }
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    const auto same = [&](const GemmAlgorithm& known) {
      return std::memcmp(&known.raw, &result.algo, sizeof(known.raw)) == 0;
    };
    if (std::none_of(answers->begin(), answers->end(), same) && Accepts(key, {result.algo})) {
      answers->push_back({result.algo});
    }
  }
}

bool CublasGemm::Accepts(const GemmKey& key, const GemmAlgorithm& algorithm) const {
  BindDevice(limits_.ordinal);
  const Descriptors descriptors(key, {});
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_, &descriptors.matmul, &descriptors.a, &descriptors.b,
                              &descriptors.d, &descriptors.d, &algorithm.raw, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<size_t>(kGemmWorkspaceBytes);
}

cublasStatus_t CublasGemm::Enqueue(const Stream& stream, const GemmKey& key,
                                   const GemmOperands& operands, const GemmAlgorithm& algorithm,
                                   const Workspace& workspace) const {
  const Descriptors descriptors(key, operands);
  const float alpha = 1, beta = key.add ? 1 : 0;
  // Never more workspace than the algorithm was chosen with: its split-K factor may depend on the
  // size.
  const auto workspace_bytes = static_cast<size_t>(std::min(workspace.bytes, kGemmWorkspaceBytes));
  return cublasLtMatmul(handle_, &descriptors.matmul, &alpha, operands.a, &descriptors.a,
                        operands.b, &descriptors.b, &beta, operands.d, &descriptors.d, operands.d,
                        &descriptors.d, &algorithm.raw, workspace.data, workspace_bytes,
                        Raw(stream));
}

bool CublasGemm::TryRun(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
                        const GemmAlgorithm& algorithm, const Workspace& workspace) const {
  return Enqueue(stream, key, operands, algorithm, workspace) == CUBLAS_STATUS_SUCCESS;
}

void CublasGemm::Run(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
                     const GemmAlgorithm& algorithm, const Workspace& workspace) const {
  const cublasStatus_t status = Enqueue(stream, key, operands, algorithm, workspace);
  if (status != CUBLAS_STATUS_SUCCESS) {
    ThrowCublasError(status, fmt::format("cublasLtMatmul {} x {} x {}", key.m, key.n, key.k));
  }
}

}  // namespace mt::kernels::cuda
