#include "kernels/cuda/tuning_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gelu_grad_product.h"
#include "kernels/cuda/tuning_run.h"

namespace mt::kernels::cuda {
namespace {

// Raised when a key's or a choice's text changes its meaning, or a separate form its kernels.
constexpr int kTableVersion = 2;

constexpr char kFused[] = "fused", kSeparate[] = "separate";

// Operands of a race are rotated over this much, so that they come from memory, not from the cache.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int kMostSets = 8;
// All candidates run a few times; those within kClose of the fastest meet again, on a device that
// is hot by then, in many short turns. Long turns mislead: clocks follow the power of tens of
// milliseconds, so that who comes behind a lazy kernel looks up to 20 % faster.
constexpr TuningRun::Length kScreening{.rounds = 3, .burst_us = 1000};
constexpr TuningRun::Length kFinal{.rounds = 25, .burst_us = 600, .lead_us = 40000};
constexpr TuningRun::Length kSurvey{.rounds = 15, .burst_us = 600, .lead_us = 40000};
// What is over too soon to heat anything up.
constexpr TuningRun::Length kShort{.rounds = 9, .burst_us = 300};
constexpr double kShortBelowUs = 40;
constexpr double kClose = 1.08;
constexpr size_t kMostFinalists = 8;

const TuningRun::Length& LengthFor(double us) { return us < kShortBelowUs ? kShort : kFinal; }

std::string IdentityOf(const DeviceLimits& limits) {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, limits.ordinal));
  return fmt::format("mt_cuda products {}, cuBLASLt {}, {}, sm_{}{}, {} SMs", kTableVersion,
                     cublasLtGetVersion(), properties.name, limits.major, limits.minor,
                     limits.num_sms);
}

const char* FormName(bool fused) { return fused ? kFused : kSeparate; }

// Several sets of random operands of one product, and a workspace.
class Sets {
 public:
  Sets(const ProductKey& key, TuningRun* run) {
    const int64_t a = key.m * key.k, b = key.k * key.n, d = key.m * key.n;
    const int64_t bytes = (a + b) * SizeOf(key.in) + 2 * d * SizeOf(key.out);
    const int64_t wanted = (kRotatedBytes + bytes - 1) / bytes;
    for (int64_t i = 0; i < std::clamp<int64_t>(wanted, 1, kMostSets); ++i) {
      // Sums of about 1: what activations cost depends on how large their inputs are.
      sets_.push_back(
          {.a = run->Random(key.in, a, 1 / std::sqrt(static_cast<double>(key.k))),
           .b = run->Random(key.in, b),
           .d = run->Random(key.out, d),
           .bias = run->Random(IsOwn(key.epilogue) ? DType::kF32 : key.out, std::max(key.m, key.n)),
           .aux = HasAuxiliary(key.epilogue) ? run->Random(key.out, d) : nullptr});
    }
    int64_t scratch = kProductWorkspaceBytes + BiasGradScratchBytes(key.n);
    if (IsOwn(key.epilogue)) scratch = std::max(scratch, GeluGradPartialBytes(key));
    workspace_ = {run->Random(DType::kF32, scratch / SizeOf(DType::kF32)), scratch};
  }
  const ProductOperands& operator[](int turn) const {
    return sets_[static_cast<size_t>(turn) % sets_.size()];
  }
  const Workspace& workspace() const { return workspace_; }

 private:
  static bool HasAuxiliary(Epilogue e) { return HasSeparateForm(e) && e != Epilogue::kBiasGrad; }

  std::vector<ProductOperands> sets_;
  Workspace workspace_;
};

// The heuristic's candidates that the library runs: its check does not promise it.
std::vector<ProductAlgorithm> Runnable(const Products& products, const ProductKey& key,
                                       const Sets& sets, TuningRun* run) {
  std::vector<ProductAlgorithm> candidates = products.Candidates(key);
  std::erase_if(candidates, [&](const ProductAlgorithm& algorithm) {
    return !products.TryRun(run->stream(), key, sets[0], algorithm, sets.workspace());
  });
  return candidates;
}

// Races the algorithms on random operands.
std::vector<double> RaceAlgorithms(const Products& products, const ProductKey& key,
                                   const std::vector<ProductAlgorithm>& algorithms,
                                   const Sets& sets, const TuningRun::Length& length,
                                   TuningRun* run) {
  std::vector<TuningRun::Contender> contenders;
  contenders.reserve(algorithms.size());
  for (const ProductAlgorithm& algorithm : algorithms) {
    contenders.emplace_back([&](int turn) {
      products.Run(run->stream(), key, sets[turn], algorithm, sets.workspace());
    });
  }
  return run->Race(contenders, length);
}

// The indices of `times`, fastest first.
std::vector<size_t> Ranking(const std::vector<double>& times) {
  std::vector<size_t> order(times.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return times[x] < times[y]; });
  return order;
}

}  // namespace

CudaTuningTable::CudaTuningTable(const DeviceLimits& limits, const ActOps* act,
                                 const VectorOps* vector)
    : products_(limits), forms_(&products_, act, vector), identity_(IdentityOf(limits)) {}

void CudaTuningTable::Plan(const ProductKey& key) {
  const base::MutexLock lock(&mutex_);
  planned_.insert({.form = false, .product = key});
}

void CudaTuningTable::PlanForms(const ProductKey& fused) {
  if (IsOwn(fused.epilogue)) {
    PlanForms(SeparateProductOf(fused));
    const base::MutexLock lock(&mutex_);
    planned_.insert({.form = true, .product = fused});
    return;
  }
  const base::MutexLock lock(&mutex_);
  planned_.insert({.form = false, .product = fused});
  planned_.insert({.form = false, .product = SeparateProductOf(fused)});
  planned_.insert({.form = true, .product = fused});
}

void CudaTuningTable::Run(const Stream& stream, const ProductKey& key,
                          const ProductOperands& operands, const Workspace& workspace) {
  const ProductChoice choice = [&] {
    const base::MutexLock lock(&mutex_);
    return Choose(key);
  }();
  CHECK(choice.possible) << "cuBLASLt has no " << ToText({.form = false, .product = key});
  products_.Run(stream, key, operands, choice.algorithm, workspace);
}

void CudaTuningTable::RunForms(Stream& stream, const ProductKey& fused,
                               const ProductOperands& operands, const Workspace& workspace,
                               GradMode bias_mode) {
  if (IsOwn(fused.epilogue)) {
    const bool own = [&] {
      const base::MutexLock lock(&mutex_);
      return Fuses(fused);
    }();
    if (own) return forms_.RunOwn(stream, fused, operands, bias_mode, workspace);
    RunForms(stream, SeparateProductOf(fused), operands, workspace);
    return forms_.SumBiasGrad(stream, fused, operands, bias_mode);
  }
  bool fuses = false;
  const ProductChoice choice = [&] {
    const base::MutexLock lock(&mutex_);
    fuses = Fuses(fused);
    return Choose(fuses ? fused : SeparateProductOf(fused));
  }();
  CHECK(choice.possible) << "cuBLASLt has no " << ToText({.form = false, .product = fused});
  if (fuses) {
    forms_.RunFused(stream, fused, operands, choice.algorithm, workspace);
  } else {
    forms_.RunSeparate(stream, fused, operands, choice.algorithm, workspace);
  }
}

ProductChoice CudaTuningTable::Choose(const ProductKey& key) {
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  return choices_.emplace(key, Tune(key)).first->second;
}

bool CudaTuningTable::Fuses(const ProductKey& fused) {
  const auto found = fuses_.find(fused);
  if (found != fuses_.end()) return found->second;
  const std::array<FormRun, 2> forms = FormsOf(fused);
  bool wins = static_cast<bool>(forms[0]);
  if (forms[0] && forms[1]) {
    const std::vector<double> us = RaceForms(fused, forms);
    wins = us[0] < us[1];
  }
  return fuses_[fused] = wins;
}

std::array<CudaTuningTable::FormRun, 2> CudaTuningTable::FormsOf(const ProductKey& fused) {
  if (IsOwn(fused.epilogue)) {
    constexpr GradMode kMode = GradMode::kOverwrite;
    std::array<FormRun, 2> forms;
    if (forms_.HasOwn(fused)) {
      forms[0] = [this, fused](Stream& s, const ProductOperands& o, const Workspace& w) {
        forms_.RunOwn(s, fused, o, kMode, w);
      };
    }
    if (const FormRun product = Best(SeparateProductOf(fused))) {
      forms[1] = [=, this](Stream& s, const ProductOperands& o, const Workspace& w) {
        product(s, o, w);
        forms_.SumBiasGrad(s, fused, o, kMode);
      };
    }
    return forms;
  }
  std::array<FormRun, 2> forms;
  if (const ProductChoice choice = Choose(fused); choice.possible) {
    forms[0] = [=, this](Stream& s, const ProductOperands& o, const Workspace& w) {
      forms_.RunFused(s, fused, o, choice.algorithm, w);
    };
  }
  if (const ProductChoice choice = Choose(SeparateProductOf(fused)); choice.possible) {
    forms[1] = [=, this](Stream& s, const ProductOperands& o, const Workspace& w) {
      forms_.RunSeparate(s, fused, o, choice.algorithm, w);
    };
  }
  return forms;
}

CudaTuningTable::FormRun CudaTuningTable::Best(const ProductKey& fused) {
  const bool fuses = Fuses(fused);
  return FormsOf(fused)[fuses ? 0 : 1];
}

ProductChoice CudaTuningTable::Tune(const ProductKey& key) const {
  TuningRun run(products_.limits());
  const Sets sets(key, &run);
  const std::vector<ProductAlgorithm> candidates = Runnable(products_, key, sets, &run);
  if (candidates.empty()) return {};
  const std::vector<double> screened =
      RaceAlgorithms(products_, key, candidates, sets, kScreening, &run);
  const std::vector<size_t> order = Ranking(screened);
  std::vector<ProductAlgorithm> finalists;
  for (const size_t i : order) {
    if (finalists.size() == kMostFinalists || screened[i] > kClose * screened[order[0]]) break;
    finalists.push_back(candidates[i]);
  }
  if (finalists.size() == 1) return {.possible = true, .algorithm = finalists[0]};
  const std::vector<double> us =
      RaceAlgorithms(products_, key, finalists, sets, LengthFor(screened[order[0]]), &run);
  return {.possible = true, .algorithm = finalists[Ranking(us)[0]]};
}

std::vector<double> CudaTuningTable::RaceForms(const ProductKey& fused,
                                               const std::array<FormRun, 2>& forms) const {
  TuningRun run(products_.limits());
  const Sets sets(fused, &run);
  std::vector<TuningRun::Contender> contenders;
  for (const FormRun& form : forms) {
    contenders.emplace_back([&](int turn) { form(run.stream(), sets[turn], sets.workspace()); });
  }
  const std::vector<double> screened = run.Race(contenders, kScreening);
  return run.Race(contenders, LengthFor(std::min(screened[0], screened[1])));
}

std::vector<std::string> CudaTuningTable::Missing() const {
  const base::MutexLock lock(&mutex_);
  std::vector<std::string> keys;
  for (const TableKey& key : planned_) {
    const bool known = key.form ? fuses_.contains(key.product) : choices_.contains(key.product);
    if (!known) keys.push_back(ToText(key));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

Status CudaTuningTable::Time(const std::vector<std::string>& keys) {
  std::set<TableKey> parsed;  // products come before forms, which need them
  for (const std::string& text : keys) {
    const std::optional<TableKey> key = ParseTableKey(text);
    if (!key) return base::InvalidArgument("\"{}\" is no product of {}", text, identity_);
    parsed.insert(*key);
  }
  for (const TableKey& key : parsed) {
    const base::MutexLock lock(&mutex_);
    if (key.form) {
      Fuses(key.product);
    } else {
      Choose(key.product);
    }
  }
  return OkStatus();
}

std::vector<TuningEntry> CudaTuningTable::Entries() const {
  const base::MutexLock lock(&mutex_);
  std::vector<TuningEntry> entries;
  for (const auto& [product, choice] : choices_) {
    entries.push_back({ToText({.form = false, .product = product}), ToText(choice)});
  }
  for (const auto& [product, fuses] : fuses_) {
    entries.push_back({ToText({.form = true, .product = product}), FormName(fuses)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const TuningEntry& x, const TuningEntry& y) { return x.key < y.key; });
  return entries;
}

StatusOr<std::vector<std::string>> CudaTuningTable::Import(
    const std::string& identity, const std::vector<TuningEntry>& entries) {
  if (identity != identity_) {
    return base::FailedPrecondition("tuning is of \"{}\", this device and its library are \"{}\"",
                                    identity, identity_);
  }
  std::vector<std::string> refused;
  std::vector<std::pair<TableKey, const TuningEntry*>> parsed;
  for (const TuningEntry& entry : entries) {
    const std::optional<TableKey> key = ParseTableKey(entry.key);
    if (key) {
      parsed.emplace_back(*key, &entry);
    } else {
      refused.push_back(entry.key);
    }
  }
  // Products before forms: a fused form is taken only where its product is possible.
  std::stable_sort(parsed.begin(), parsed.end(),
                   [](const auto& x, const auto& y) { return x.first.form < y.first.form; });
  const base::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : parsed) {
    if (!ImportOne(key, entry->choice)) refused.push_back(entry->key);
  }
  return refused;
}

bool CudaTuningTable::ImportOne(const TableKey& key, const std::string& choice) {
  if (!key.form) {
    const std::optional<ProductChoice> parsed = ParseChoice(choice);
    if (!parsed) return false;
    if (parsed->possible && !products_.Accepts(key.product, parsed->algorithm)) return false;
    choices_[key.product] = *parsed;
    return true;
  }
  if (choice != kFused && choice != kSeparate) return false;
  const bool fuses = choice == kFused;
  if (IsOwn(key.product.epilogue)) {
    if (fuses && !forms_.HasOwn(key.product)) return false;
    fuses_[key.product] = fuses;
    return true;
  }
  const auto product = choices_.find(fuses ? key.product : SeparateProductOf(key.product));
  if (product != choices_.end() && !product->second.possible) return false;
  fuses_[key.product] = fuses;
  return true;
}

StatusOr<std::vector<TuningTime>> CudaTuningTable::Survey(const std::string& text) {
  const std::optional<TableKey> key = ParseTableKey(text);
  if (!key) return base::InvalidArgument("\"{}\" is no product of {}", text, identity_);
  const ProductKey& product = key->product;
  const base::MutexLock lock(&mutex_);
  std::vector<std::string> choices;
  std::vector<double> us;
  std::string chosen;
  if (key->form) {
    const std::array<FormRun, 2> forms = FormsOf(product);
    if (!forms[0] || !forms[1]) return std::vector<TuningTime>{};
    choices = {kFused, kSeparate};
    us = RaceForms(product, forms);
    const auto entry = fuses_.find(product);
    if (entry != fuses_.end()) chosen = FormName(entry->second);
  } else {
    TuningRun run(products_.limits());
    const Sets sets(product, &run);
    const std::vector<ProductAlgorithm> candidates = Runnable(products_, product, sets, &run);
    for (const ProductAlgorithm& algorithm : candidates) {
      choices.push_back(ToText({.possible = true, .algorithm = algorithm}));
    }
    const std::vector<double> screened =
        RaceAlgorithms(products_, product, candidates, sets, kScreening, &run);
    const double fastest =
        screened.empty() ? 0 : *std::min_element(screened.begin(), screened.end());
    us = RaceAlgorithms(products_, product, candidates, sets,
                        fastest < kShortBelowUs ? kShort : kSurvey, &run);
    const auto entry = choices_.find(product);
    if (entry != choices_.end()) chosen = ToText(entry->second);
  }
  std::vector<TuningTime> times;
  for (const size_t i : Ranking(us)) {
    times.push_back({.choice = choices[i], .us = us[i], .chosen = choices[i] == chosen});
  }
  return times;
}

}  // namespace mt::kernels::cuda
