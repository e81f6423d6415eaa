// E7: how many algorithms cuBLASLt's heuristic returns when asked in several ways, and whether
// others of the same families (other tiles, cluster shapes and swizzles, as far as the library's
// check accepts them) are faster. Host code alone; GEMMs of GPT-2 124M and GPT-3 1.3B. It decides
// what CublasGemm::Candidates asks for, and that it searches no further.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20, kOperandBytes = size_t{900} << 20;
constexpr size_t kMostConfigurations = 400;

void Check(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "%s: %d\n", what, status);
  std::exit(1);
}
#define OK(call) Check(static_cast<int>(call), #call)

struct Shape {
  const char* name;
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  cudaDataType_t out;
  cublasLtEpilogue_t epilogue;
};

struct Device {
  cublasLtHandle_t handle;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  void *a, *b, *d, *aux, *bias, *workspace;
};

// The descriptors of one GEMM.
struct Op {
  cublasLtMatmulDescOpaque_t matmul;
  cublasLtMatrixLayoutOpaque_t a, b, d;

  Op(const Device& device, const Shape& z, int sms = 0) {
    OK(cublasLtMatmulDescInit(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(CUBLASLT_MATMUL_DESC_TRANSA, z.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, z.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, z.epilogue);
    if (sms > 0) Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{sms});
    if (z.epilogue == CUBLASLT_EPILOGUE_BIAS || z.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, z.out);
    }
    if (z.epilogue == CUBLASLT_EPILOGUE_DGELU || z.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, device.aux);
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, z.m);
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, z.out);
    }
    SetLayout(&a, CUDA_R_16BF, z.transpose_a, z.m, z.k);
    SetLayout(&b, CUDA_R_16BF, z.transpose_b, z.k, z.n);
    SetLayout(&d, z.out, false, z.m, z.n);
  }
  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    OK(cublasLtMatmulDescSetAttribute(&matmul, attribute, &value, sizeof(value)));
  }
  static void SetLayout(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type, bool transposed,
                        int64_t rows, int64_t columns) {
    if (transposed) std::swap(rows, columns);
    OK(cublasLtMatrixLayoutInit(layout, type, static_cast<uint64_t>(rows),
                                static_cast<uint64_t>(columns), rows));
  }
};

struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  bool named;  // returned by the heuristic
  double us = 0;
};
using Candidates = std::vector<Candidate>;

void Add(const Candidate& candidate, Candidates* all) {
  const auto same = [&](const Candidate& known) {
    return std::memcmp(&known.algorithm, &candidate.algorithm, sizeof(known.algorithm)) == 0;
  };
  if (std::none_of(all->begin(), all->end(), same)) all->push_back(candidate);
}

// Adds the heuristic's answers; returns how many there were.
int Ask(const Device& device, const Shape& z, int request, size_t workspace_bytes, int sms,
        Candidates* all) {
  Op op(device, z, sms);
  cublasLtMatmulPreferenceOpaque_t preference;
  OK(cublasLtMatmulPreferenceInit(&preference));
  OK(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &workspace_bytes, sizeof(workspace_bytes)));
  const uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
      (z.out == CUDA_R_32F ? static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE) : 0U);
  OK(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                          &reductions, sizeof(reductions)));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(request));
  int count = 0;
  OK(cublasLtMatmulAlgoGetHeuristic(device.handle, &op.matmul, &op.a, &op.b, &op.d, &op.d,
                                    &preference, request, results.data(), &count));
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) Add({result.algo, true}, all);
  }
  return count;
}

// Adds other configurations of the known algorithms, up to kMostConfigurations.
void AddRelatives(const Device& device, const Shape& z, Candidates* all) {
  Op op(device, z);
  const Candidates named = *all;
  for (const Candidate& from : named) {
    uint32_t tiles[CUBLASLT_MATMUL_TILE_END];
    size_t written = 0;
    if (cublasLtMatmulAlgoCapGetAttribute(&from.algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles,
                                          sizeof(tiles), &written) != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    const size_t combinations = written / sizeof(tiles[0]) * 7 * 2;
    for (size_t i = 0; i < combinations && all->size() < kMostConfigurations; ++i) {
      // Clusters 1x1, 2x1, 4x1, 1x2, 2x2, 1x4, and the library's own.
      constexpr uint16_t kClusters[7] = {0, 2, 3, 4, 5, 6, 8};
      Candidate candidate{from.algorithm, false};
      const uint32_t swizzle = i % 2;
      const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, const auto& value) {
        return cublasLtMatmulAlgoConfigSetAttribute(&candidate.algorithm, attribute, &value,
                                                    sizeof(value)) == CUBLAS_STATUS_SUCCESS;
      };
      cublasLtMatmulHeuristicResult_t checked{};
      if (set(CUBLASLT_ALGO_CONFIG_TILE_ID, tiles[i / 14]) &&
          set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, kClusters[i / 2 % 7]) &&
          set(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle) &&
          cublasLtMatmulAlgoCheck(device.handle, &op.matmul, &op.a, &op.b, &op.d, &op.d,
                                  &candidate.algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
          checked.workspaceSize <= kWorkspaceBytes) {
        Add(candidate, all);
      }
    }
  }
}

bool Run(const Device& device, Op* op, const Candidate& candidate) {
  const float one = 1, zero = 0;
  return cublasLtMatmul(device.handle, &op->matmul, &one, device.a, &op->a, device.b, &op->b, &zero,
                        device.d, &op->d, device.d, &op->d, &candidate.algorithm, device.workspace,
                        kWorkspaceBytes, device.stream) == CUBLAS_STATUS_SUCCESS;
}

double Burst(const Device& device, Op* op, const Candidate& candidate, int calls) {
  OK(cudaEventRecord(device.begin, device.stream));
  for (int i = 0; i < calls; ++i) Run(device, op, candidate);
  OK(cudaEventRecord(device.end, device.stream));
  OK(cudaEventSynchronize(device.end));
  float ms = 0;
  OK(cudaEventElapsedTime(&ms, device.begin, device.end));
  return static_cast<double>(ms) * 1000 / calls;
}

// Sorts by the median of `rounds` turns of about `turn_us` microseconds; drops candidates that do
// not run.
void Race(const Device& device, const Shape& z, int rounds, double turn_us, Candidates* all) {
  Op op(device, z);
  std::erase_if(*all, [&](const Candidate& candidate) { return !Run(device, &op, candidate); });
  OK(cudaStreamSynchronize(device.stream));
  std::vector<std::vector<double>> times(all->size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t place = 0; place < all->size(); ++place) {
      const size_t i = (place + static_cast<size_t>(round)) % all->size();
      const double once = Burst(device, &op, (*all)[i], 1);
      times[i].push_back(
          Burst(device, &op, (*all)[i], std::max(1, static_cast<int>(turn_us / once))));
    }
  }
  for (size_t i = 0; i < all->size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    (*all)[i].us = times[i][times[i].size() / 2];
  }
  std::sort(all->begin(), all->end(),
            [](const Candidate& x, const Candidate& y) { return x.us < y.us; });
}

void Explore(const Device& device, const Shape& z) {
  std::printf("%s: answers to requests of", z.name);
  for (const int request : {1, 8, 16, 32, 64, 128}) {
    Candidates ignored;
    std::printf(" %d: %d,", request, Ask(device, z, request, kWorkspaceBytes, 0, &ignored));
  }
  Candidates named;
  Ask(device, z, 64, kWorkspaceBytes, 0, &named);
  const size_t plain = named.size();
  Ask(device, z, 64, 0, 0, &named);
  const size_t without_workspace = named.size();
  for (const int sms : {128, 116, 99, 66}) Ask(device, z, 64, kWorkspaceBytes, sms, &named);
  Candidates all = named;
  AddRelatives(device, z, &all);
  std::printf(
      " different ones %zu, asked without workspace %zu, for fewer SMs %zu; relatives %zu\n", plain,
      without_workspace, named.size(), all.size() - named.size());
  Race(device, z, 2, 600, &all);
  all.resize(std::min<size_t>(all.size(), 12));
  Race(device, z, 3, 15000, &all);
  const double flops =
      2.0 * static_cast<double>(z.m) * static_cast<double>(z.n) * static_cast<double>(z.k);
  for (size_t i = 0; i < std::min<size_t>(all.size(), 4); ++i) {
    std::printf("  %8.1f us %6.1f TFLOP/s%s\n", all[i].us, flops / all[i].us * 1e-6,
                all[i].named ? "" : ", a relative");
  }
}

// Fills memory with normally distributed numbers, the same 4 Mi of them again and again.
void FillNormal(void* to, size_t bytes) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.5F);
  std::vector<uint16_t> block(size_t{4} << 20);
  for (uint16_t& out : block) {
    const float value = normal(generator);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    out = static_cast<uint16_t>(bits >> 16);
  }
  for (size_t at = 0; at < bytes; at += block.size() * 2) {
    OK(cudaMemcpy(static_cast<char*>(to) + at, block.data(), std::min(block.size() * 2, bytes - at),
                  cudaMemcpyHostToDevice));
  }
}

}  // namespace

int main() {
  Device device{};
  OK(cublasLtCreate(&device.handle));
  OK(cudaStreamCreate(&device.stream));
  OK(cudaEventCreate(&device.begin));
  OK(cudaEventCreate(&device.end));
  for (void** operand : {&device.a, &device.b, &device.d, &device.aux}) {
    OK(cudaMalloc(operand, kOperandBytes));
    FillNormal(*operand, kOperandBytes);
  }
  OK(cudaMalloc(&device.bias, size_t{1} << 20));
  FillNormal(device.bias, size_t{1} << 20);
  OK(cudaMalloc(&device.workspace, kWorkspaceBytes));
  constexpr auto kBf16 = CUDA_R_16BF, kF32 = CUDA_R_32F;
  constexpr auto kPlain = CUBLASLT_EPILOGUE_DEFAULT, kBias = CUBLASLT_EPILOGUE_BIAS,
                 kGelu = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, kGeluGrad = CUBLASLT_EPILOGUE_DGELU;
  for (const Shape& z :
       {Shape{"124M fc2 forward", true, false, 768, 32768, 3072, kBf16, kPlain},
        Shape{"124M fc1 forward + bias", true, false, 3072, 32768, 768, kBf16, kBias},
        Shape{"124M fc1 forward + bias + gelu", true, false, 3072, 32768, 768, kBf16, kGelu},
        Shape{"124M fc2 input gradient + gelu'", false, false, 3072, 32768, 768, kBf16, kGeluGrad},
        Shape{"124M fc1 weight gradient", false, true, 768, 3072, 32768, kF32, kPlain},
        Shape{"124M qkv forward + bias", true, false, 2304, 32768, 768, kBf16, kBias},
        Shape{"1.3B fc2 forward", true, false, 2048, 16384, 8192, kBf16, kPlain},
        Shape{"1.3B fc1 forward + bias + gelu", true, false, 8192, 16384, 2048, kBf16, kGelu}}) {
    Explore(device, z);
  }
  return 0;
}
