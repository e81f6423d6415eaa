// Assembles the CPU backend and checks the processor first. This file is compiled without
// MT_CPU_ARCH, so the check itself runs on any processor and can print what is missing.
#include "kernels/cpu/cpu_backend.h"

#include <string>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops/compiled_for.h"

namespace mt::kernels::cpu {
namespace {

constexpr int kMaxThreads = 1024;

// Returns the first instruction set that the loops need and this processor lacks; "" if there is
// none.
std::string MissingInstructions() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const CompiledFor& need = kCompiledFor;
  if (need.sse42 && !__builtin_cpu_supports("sse4.2")) return "SSE4.2";
  if (need.avx && !__builtin_cpu_supports("avx")) return "AVX";
  if (need.avx2 && !__builtin_cpu_supports("avx2")) return "AVX2";
  if (need.fma && !__builtin_cpu_supports("fma")) return "FMA";
  if (need.bmi2 && !__builtin_cpu_supports("bmi2")) return "BMI2";
  if (need.avx512f && !__builtin_cpu_supports("avx512f")) return "AVX-512F";
  if (need.avx512bw && !__builtin_cpu_supports("avx512bw")) return "AVX-512BW";
  if (need.avx512dq && !__builtin_cpu_supports("avx512dq")) return "AVX-512DQ";
  if (need.avx512vl && !__builtin_cpu_supports("avx512vl")) return "AVX-512VL";
#endif
  return "";
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int num_threads)
      : pool_(num_threads),
        device_(&pool_, fmt::format("cpu, {} thread{}, OpenBLAS {}", num_threads,
                                    num_threads == 1 ? "" : "s", OpenBlasCoreType())) {}

  Device& device() override { return device_; }
  const EmbeddingOps& embedding() const override { return embedding_; }
  const AddNormOps& add_norm() const override { return add_norm_; }
  LinearOps& linear() override { return linear_; }
  const ActOps& act() const override { return act_; }
  const RopeOps& rope() const override { return rope_; }
  AttentionOps& attention() override { return attention_; }
  const LossOps& loss() const override { return loss_; }
  const UpdateOps& update() const override { return update_; }
  const VectorOps& vector() const override { return vector_; }
  const RandomOps& random() const override { return random_; }

 private:
  ThreadPool pool_;
  CpuDevice device_;
  const CpuEmbedding embedding_{&pool_};
  const CpuAddNorm add_norm_{&pool_};
  const CpuAct act_{&pool_};
  const CpuVector vector_{&pool_};
  CpuLinear linear_{&pool_, &act_, &vector_};
  const CpuRope rope_{&pool_};
  CpuAttention attention_{&pool_};
  const CpuLoss loss_{&pool_};
  const CpuUpdate update_{&pool_};
  const CpuRandom random_{&pool_};
};

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuConfig& config) {
  if (config.num_threads < 1 || config.num_threads > kMaxThreads) {
    return base::InvalidArgument("CPU backend: {} threads; 1 to {} are possible",
                                 config.num_threads, kMaxThreads);
  }
  const std::string missing = MissingInstructions();
  if (!missing.empty()) {
    return base::FailedPrecondition(
        "CPU backend: this processor has no {}, which the kernels were built for; rebuild with "
        "-DMT_CPU_ARCH=x86-64 (or -v2)",
        missing);
  }
  InitOpenBlas();
  return std::make_unique<CpuBackend>(config.num_threads);
}

}  // namespace mt::kernels::cpu
