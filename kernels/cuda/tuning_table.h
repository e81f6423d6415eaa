// The table of products of one GPU: which algorithm of cuBLASLt for each product, and which of its
// forms where there are several. Settled before a run's first step (kernels/ops/tuning.h); a
// product that nobody planned is timed when it is first run, which cannot be captured.
#pragma once

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

  // Notes that the product will be run.
  void Plan(const ProductKey& key) LOCKS_EXCLUDED(mutex_);
  // Enqueues the product as it was chosen; see ProductForms. CHECKs that there is a way.
  void Run(Stream& stream, const ProductKey& key, const ProductOperands& operands,
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
  Form ChooseForm(const ProductKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether cuBLASLt is known not to have it.
  bool IsImpossible(const ProductKey& key) const EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False where the library or the device does not take it.
  bool ImportOne(const TableKey& key, const std::string& choice) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ProductChoice Tune(const ProductKey& key) const;
  // What runs a product as it was chosen, with cuBLASLt, and in each of its forms that the library
  // and the device have; else empty.
  using ProductRun = std::function<void(Stream&, const ProductOperands&, const Workspace&)>;
  ProductRun Best(const ProductKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ProductRun Fused(const ProductKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<Form, ProductRun> FormsOf(const ProductKey& key) EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Microseconds of each, in their order.
  std::vector<double> RaceForms(const ProductKey& key,
                                const std::map<Form, ProductRun>& forms) const;

  const Products products_;
  const ProductForms forms_;
  const std::string identity_;
  mutable base::Mutex mutex_;
  std::map<ProductKey, ProductChoice> choices_ GUARDED_BY(mutex_);
  std::map<ProductKey, Form> chosen_forms_ GUARDED_BY(mutex_);
  std::set<TableKey> planned_ GUARDED_BY(mutex_);
};

}  // namespace mt::kernels::cuda
