// The tuning table of one GPU: the cuBLASLt algorithm of each GEMM, and the form of each GEMM that
// has several. It is completed before a run's first step (kernels/ops/tuning.h); a GEMM that was
// never planned is timed on its first call, which cannot be captured into a CUDA graph.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/cuda/gemm/cublas_gemm.h"
#include "kernels/cuda/gemm/gemm_choice.h"
#include "kernels/cuda/gemm/gemm_forms.h"
#include "kernels/ops/tuning.h"

namespace mt::kernels::cuda {

// Thread-safe: one mutex guards the choices and is held while something is timed, so calls block.
// Enqueuing a GEMM holds it only for the lookup.
class CudaTuningTable final : public TuningTable {
 public:
  // `act` and `vector` must outlive this object.
  CudaTuningTable(const DeviceLimits& limits, const ActOps* act, const VectorOps* vector);

  // Registers that the GEMM will be run.
  void Plan(const GemmKey& key) LOCKS_EXCLUDED(mutex_);
  // Enqueues the GEMM in its chosen form (see GemmForms for operands and workspace). Times it
  // first if it has no entry. Aborts (CHECK) if there is no way to compute it.
  void Run(Stream& stream, const GemmKey& key, const GemmOperands& operands,
           const Workspace& workspace, GradMode bias_mode = GradMode::kOverwrite)
      LOCKS_EXCLUDED(mutex_);

  // Runs every planned GEMM once in its chosen form, and waits; what has no entry is timed. Throws
  // DeviceMemoryError.
  void RunPlanned() LOCKS_EXCLUDED(mutex_);

  std::string Identity() const override { return identity_; }
  std::vector<std::string> Missing() const override LOCKS_EXCLUDED(mutex_);
  Status Time(const std::vector<std::string>& keys) override LOCKS_EXCLUDED(mutex_);
  std::vector<TuningEntry> Entries() const override LOCKS_EXCLUDED(mutex_);
  StatusOr<std::vector<std::string>> Import(const std::string& identity,
                                            const std::vector<TuningEntry>& entries) override
      LOCKS_EXCLUDED(mutex_);
  StatusOr<std::vector<TuningTime>> Survey(const std::string& key) override LOCKS_EXCLUDED(mutex_);

 private:
  // Return the table's entry; time the alternatives first if there is none.
  GemmChoice Choose(const GemmKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Form ChooseForm(const GemmKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether an entry says that cuBLASLt cannot compute it.
  bool IsImpossible(const GemmKey& key) const EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns false if the library or the device does not accept the entry.
  bool ImportOne(const TableKey& key, const std::string& choice) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  GemmChoice Tune(const GemmKey& key) const;
  // Functions that run a GEMM: in its best form, with cuBLASLt's epilogue, and in each form that
  // the library and the device support; empty if not supported.
  using GemmRun = std::function<void(Stream&, const GemmOperands&, const Workspace&)>;
  GemmRun Best(const GemmKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  GemmRun Fused(const GemmKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<Form, GemmRun> FormsOf(const GemmKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the microseconds of each form, in the map's order.
  std::vector<double> RaceForms(const GemmKey& key, const std::map<Form, GemmRun>& forms) const;

  const CublasGemm cublas_;
  const GemmForms forms_;
  const std::string identity_;
  mutable base::Mutex mutex_;
  std::map<GemmKey, GemmChoice> choices_ GUARDED_BY(mutex_);
  std::map<GemmKey, Form> chosen_forms_ GUARDED_BY(mutex_);
  std::set<TableKey> planned_ GUARDED_BY(mutex_);
};

}  // namespace mt::kernels::cuda
