// The table of products of one GPU: which algorithm of cuBLASLt for each product, and which of its
// two forms where there are two. Settled before a run's first step (kernels/ops/tuning.h); a
// product that nobody planned is timed when it is first run, which cannot be captured.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_choice.h"
#include "kernels/cuda/product_forms.h"
#include "kernels/ops/tuning.h"

namespace mt::kernels::cuda {

// Thread-safe.
class CudaTuningTable final : public TuningTable {
 public:
  // `act` and `vector` outlive this.
  CudaTuningTable(const DeviceLimits& limits, const ActOps* act, const VectorOps* vector);

  // Notes that the product will be run, or the product with this epilogue in one of its two forms.
  void Plan(const ProductKey& key) LOCKS_EXCLUDED(mutex_);
  void PlanForms(const ProductKey& fused) LOCKS_EXCLUDED(mutex_);
  // Enqueues the product with its algorithm. CHECKs that there is one.
  void Run(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
           const Workspace& workspace) LOCKS_EXCLUDED(mutex_);
  // The same in the form that was chosen; see ProductForms. `bias_mode` is kGeluGradBias's.
  void RunForms(Stream& stream, const ProductKey& fused, const ProductOperands& operands,
                const Workspace& workspace, GradMode bias_mode = GradMode::kOverwrite)
      LOCKS_EXCLUDED(mutex_);

  std::string Identity() const override { return identity_; }
  std::vector<std::string> Missing() const override LOCKS_EXCLUDED(mutex_);
  Status Time(const std::vector<std::string>& keys) override LOCKS_EXCLUDED(mutex_);
  std::vector<TuningEntry> Entries() const override LOCKS_EXCLUDED(mutex_);
  StatusOr<std::vector<std::string>> Import(const std::string& identity,
                                            const std::vector<TuningEntry>& entries) override
      LOCKS_EXCLUDED(mutex_);
  StatusOr<std::vector<TuningTime>> Survey(const std::string& key) override LOCKS_EXCLUDED(mutex_);

 private:
  // What they return is in the table; timed first where it was not.
  ProductChoice Choose(const ProductKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fuses(const ProductKey& fused) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False where the library does not take it.
  bool ImportOne(const TableKey& key, const std::string& choice) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ProductChoice Tune(const ProductKey& key) const;
  // What runs a product with cuBLASLt's epilogue in the form that wins, and the fused and the
  // separate form of any; empty where the library or the device has none.
  using FormRun = std::function<void(Stream&, const ProductOperands&, const Workspace&)>;
  FormRun Best(const ProductKey& fused) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::array<FormRun, 2> FormsOf(const ProductKey& fused) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Microseconds of each.
  std::vector<double> RaceForms(const ProductKey& fused, const std::array<FormRun, 2>& forms) const;

  const Products products_;
  const ProductForms forms_;
  const std::string identity_;
  mutable base::Mutex mutex_;
  std::map<ProductKey, ProductChoice> choices_ GUARDED_BY(mutex_);
  std::map<ProductKey, bool> fuses_ GUARDED_BY(mutex_);  // by the fused product
  std::set<TableKey> planned_ GUARDED_BY(mutex_);
};

}  // namespace mt::kernels::cuda
