// The timing and the choice of GEMMs: all candidates of cuBLASLt's heuristic race in short turns,
// the fastest few again on a hot device, then the forms (custom, fused, separate) against each
// other. Import accepts only entries that the library and the device can run.
#include "kernels/cuda/gemm/tuning_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/gemm/custom_gemm.h"
#include "kernels/cuda/gemm/tuning_run.h"

namespace mt::kernels::cuda {
namespace {

// Raised when the text of a key or a choice changes its meaning, or when the kernels of a form
// change.
constexpr int kTableVersion = 3;

// Bytes over which the operands of a race are rotated, so that they come from memory and not from
// the L2 cache.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int kMostSets = 8;
// All candidates run a few times; those within kClose of the fastest race again, on a device that
// is hot by then, in many short turns. Long turns mislead: clocks follow the power of the last tens
// of milliseconds, so that a contender behind one with low power looks up to 20 % faster.
constexpr TuningRun::Length kScreening{.rounds = 3, .burst_us = 1000};
constexpr TuningRun::Length kFinal{.rounds = 25, .burst_us = 600, .lead_us = 40000};
constexpr TuningRun::Length kSurvey{.rounds = 15, .burst_us = 600, .lead_us = 40000};
// For work that is too short to heat the device.
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

// Several sets of random operands of one GEMM, and a workspace.
class Sets {
 public:
  Sets(const GemmKey& key, TuningRun* run) {
    const int64_t a = key.m * key.k, b = key.k * key.n;
    const int64_t d = key.m * key.n * (key.epilogue == Epilogue::kSwigluGrad ? 2 : 1);
    const int64_t bytes = (a + b) * SizeOf(key.in) + 2 * d * SizeOf(key.out);
    const int64_t wanted = (kRotatedBytes + bytes - 1) / bytes;
    for (int64_t i = 0; i < std::clamp<int64_t>(wanted, 1, kMostSets); ++i) {
      // Sums have a magnitude of about 1: the cost of activations depends on that of their inputs.
      sets_.push_back(
          {.a = run->Random(key.in, a, 1 / std::sqrt(static_cast<double>(key.k))),
           .b = run->Random(key.in, b),
           .d = run->Random(key.out, d),
           .bias = run->Random(key.epilogue == Epilogue::kGeluGradBias ? DType::kF32 : key.out,
                               std::max(key.m, key.n)),
           .aux = HasSeparateForm(key.epilogue) ? run->Random(key.out, d) : nullptr});
    }
    const int64_t scratch =
        std::max(kGemmWorkspaceBytes + SeparateScratchBytes(key), CustomGemmScratchBytes(key));
    workspace_ = {run->Random(DType::kF32, scratch / SizeOf(DType::kF32)), scratch};
  }
  const GemmOperands& operator[](int turn) const {
    return sets_[static_cast<size_t>(turn) % sets_.size()];
  }
  const Workspace& workspace() const { return workspace_; }

 private:
  std::vector<GemmOperands> sets_;
  Workspace workspace_;
};

// Returns the heuristic's candidates that the library really runs; its check alone does not
// guarantee it.
std::vector<GemmAlgorithm> Runnable(const CublasGemm& cublas, const GemmKey& key, const Sets& sets,
                                    TuningRun* run) {
  std::vector<GemmAlgorithm> candidates = cublas.Candidates(key);
  std::erase_if(candidates, [&](const GemmAlgorithm& algorithm) {
    return !cublas.TryRun(run->stream(), key, sets[0], algorithm, sets.workspace());
  });
  return candidates;
}

// Races the algorithms on random operands and returns their microseconds.
std::vector<double> RaceAlgorithms(const CublasGemm& cublas, const GemmKey& key,
                                   const std::vector<GemmAlgorithm>& algorithms, const Sets& sets,
                                   const TuningRun::Length& length, TuningRun* run) {
  std::vector<TuningRun::Contender> contenders;
  contenders.reserve(algorithms.size());
  for (const GemmAlgorithm& algorithm : algorithms) {
    contenders.emplace_back(
        [&](int turn) { cublas.Run(run->stream(), key, sets[turn], algorithm, sets.workspace()); });
  }
  return run->Race(contenders, length);
}

// Returns the indices of `times`, fastest first.
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
    : cublas_(limits), forms_(&cublas_, act, vector), identity_(IdentityOf(limits)) {}

void CudaTuningTable::Plan(const GemmKey& key) {
  if (HasSeparateForm(key.epilogue)) Plan(SeparateGemmOf(key));
  const base::MutexLock lock(&mutex_);
  if (HasFusedForm(key.epilogue)) planned_.insert({.form = false, .gemm = key});
  if (HasForms(key)) planned_.insert({.form = true, .gemm = key});
}

void CudaTuningTable::Run(Stream& stream, const GemmKey& key, const GemmOperands& operands,
                          const Workspace& workspace, GradMode bias_mode) {
  Form form = Form::kFused;
  GemmChoice choice;
  {
    const base::MutexLock lock(&mutex_);
    if (HasForms(key)) form = ChooseForm(key);
    if (form == Form::kFused) choice = Choose(key);
  }
  switch (form) {
    case Form::kCustom:
      return forms_.RunCustom(stream, key, operands, bias_mode, workspace);
    case Form::kFused:
      CHECK(choice.possible) << "cuBLASLt has no " << ToText({.form = false, .gemm = key});
      return cublas_.Run(stream, key, operands, choice.algorithm, workspace);
    case Form::kSeparate:
      Run(stream, SeparateGemmOf(key), GemmForms::SeparateOperands(key, operands, workspace),
          workspace);
      return forms_.FinishSeparate(stream, key, operands, workspace, bias_mode);
  }
}

void CudaTuningTable::RunPlanned() {
  std::set<GemmKey> keys;
  {
    const base::MutexLock lock(&mutex_);
    for (const TableKey& key : planned_) keys.insert(key.gemm);
  }
  if (keys.empty()) return;
  // Nobody reads the results, so all operands may share one place.
  int64_t bytes = 0, scratch = 0;
  for (const GemmKey& key : keys) {
    const int64_t d = key.m * key.n * (key.epilogue == Epilogue::kSwigluGrad ? 2 : 1);
    const int64_t in = SizeOf(key.in), out = SizeOf(key.out), sum = SizeOf(DType::kF32);
    bytes = std::max({bytes, key.m * key.k * in, key.k * key.n * in, d * out, key.m * sum});
    scratch = std::max(
        {scratch, kGemmWorkspaceBytes + SeparateScratchBytes(key), CustomGemmScratchBytes(key)});
  }
  TuningRun run(cublas_.limits());
  void* const data = run.Random(DType::kF32, bytes / SizeOf(DType::kF32) + 1);
  const Workspace workspace{run.Random(DType::kF32, scratch / SizeOf(DType::kF32)), scratch};
  const GemmOperands operands{.a = data, .b = data, .d = data, .bias = data, .aux = data};
  for (const GemmKey& key : keys) Run(run.stream(), key, operands, workspace);
  run.stream().Synchronize();
}

GemmChoice CudaTuningTable::Choose(const GemmKey& key) {
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  return choices_.emplace(key, Tune(key)).first->second;
}

Form CudaTuningTable::ChooseForm(const GemmKey& key) {
  const auto found = chosen_forms_.find(key);
  if (found != chosen_forms_.end()) return found->second;
  const std::map<Form, GemmRun> forms = FormsOf(key);
  CHECK(!forms.empty()) << "no way to do " << ToText({.form = true, .gemm = key});
  auto fastest = forms.begin();
  if (forms.size() > 1) {
    const std::vector<double> us = RaceForms(key, forms);
    std::advance(fastest, Ranking(us)[0]);
  }
  return chosen_forms_.emplace(key, fastest->first).first->second;
}

std::map<Form, CudaTuningTable::GemmRun> CudaTuningTable::FormsOf(const GemmKey& key) {
  constexpr GradMode kMode = GradMode::kOverwrite;
  std::map<Form, GemmRun> forms;
  if (forms_.HasCustom(key)) {
    forms[Form::kCustom] = [=, this](Stream& s, const GemmOperands& o, const Workspace& w) {
      forms_.RunCustom(s, key, o, kMode, w);
    };
  }
  if (HasFusedForm(key.epilogue)) {
    if (GemmRun fused = Fused(key)) forms[Form::kFused] = std::move(fused);
  }
  if (HasSeparateForm(key.epilogue)) {
    if (const GemmRun gemm = Best(SeparateGemmOf(key))) {
      forms[Form::kSeparate] = [=, this](Stream& s, const GemmOperands& o, const Workspace& w) {
        gemm(s, GemmForms::SeparateOperands(key, o, w), w);
        forms_.FinishSeparate(s, key, o, w, kMode);
      };
    }
  }
  return forms;
}

CudaTuningTable::GemmRun CudaTuningTable::Fused(const GemmKey& key) {
  const GemmChoice choice = Choose(key);
  if (!choice.possible) return {};
  return [=, this](Stream& s, const GemmOperands& o, const Workspace& w) {
    cublas_.Run(s, key, o, choice.algorithm, w);
  };
}

CudaTuningTable::GemmRun CudaTuningTable::Best(const GemmKey& key) {
  if (!HasForms(key)) return Fused(key);
  const std::map<Form, GemmRun> forms = FormsOf(key);
  return forms.empty() ? GemmRun{} : forms.at(ChooseForm(key));
}

GemmChoice CudaTuningTable::Tune(const GemmKey& key) const {
  TuningRun run(cublas_.limits());
  const Sets sets(key, &run);
  const std::vector<GemmAlgorithm> candidates = Runnable(cublas_, key, sets, &run);
  if (candidates.empty()) return {};
  const std::vector<double> screened =
      RaceAlgorithms(cublas_, key, candidates, sets, kScreening, &run);
  const std::vector<size_t> order = Ranking(screened);
  std::vector<GemmAlgorithm> finalists;
  for (const size_t i : order) {
    if (finalists.size() == kMostFinalists || screened[i] > kClose * screened[order[0]]) break;
    finalists.push_back(candidates[i]);
  }
  if (finalists.size() == 1) return {.possible = true, .algorithm = finalists[0]};
  const std::vector<double> us =
      RaceAlgorithms(cublas_, key, finalists, sets, LengthFor(screened[order[0]]), &run);
  return {.possible = true, .algorithm = finalists[Ranking(us)[0]]};
}

std::vector<double> CudaTuningTable::RaceForms(const GemmKey& key,
                                               const std::map<Form, GemmRun>& forms) const {
  TuningRun run(cublas_.limits());
  const Sets sets(key, &run);
  std::vector<TuningRun::Contender> contenders;
  for (const auto& [form, gemm_run] : forms) {
    contenders.emplace_back([&, gemm_run = &gemm_run](int turn) {
      (*gemm_run)(run.stream(), sets[turn], sets.workspace());
    });
  }
  const std::vector<double> screened = run.Race(contenders, kScreening);
  return run.Race(contenders, LengthFor(*std::min_element(screened.begin(), screened.end())));
}

std::vector<std::string> CudaTuningTable::Missing() const {
  const base::MutexLock lock(&mutex_);
  std::vector<std::string> keys;
  for (const TableKey& key : planned_) {
    const bool known = key.form ? chosen_forms_.contains(key.gemm) : choices_.contains(key.gemm);
    if (!known) keys.push_back(ToText(key));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

Status CudaTuningTable::Time(const std::vector<std::string>& keys) {
  std::set<TableKey> parsed;  // sorted: GEMMs come before forms, which depend on them
  for (const std::string& text : keys) {
    const std::optional<TableKey> key = ParseTableKey(text);
    if (!key) return base::InvalidArgument("\"{}\" is no product of {}", text, identity_);
    parsed.insert(*key);
  }
  for (const TableKey& key : parsed) {
    const base::MutexLock lock(&mutex_);
    if (key.form) {
      ChooseForm(key.gemm);
    } else {
      Choose(key.gemm);
    }
  }
  return OkStatus();
}

std::vector<TuningEntry> CudaTuningTable::Entries() const {
  const base::MutexLock lock(&mutex_);
  std::vector<TuningEntry> entries;
  for (const auto& [gemm, choice] : choices_) {
    entries.push_back({ToText({.form = false, .gemm = gemm}), ToText(choice)});
  }
  for (const auto& [gemm, form] : chosen_forms_) {
    entries.push_back({ToText({.form = true, .gemm = gemm}), Name(form)});
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
    } else if (!IsRetiredKey(entry.key) || entry.choice == Name(Form::kFused)) {
      // (What a retired form had computed in the GEMM has other bits beside it.)
      refused.push_back(entry.key);
    }
  }
  // GEMMs before forms: a fused form is accepted only if its GEMM is possible.
  std::stable_sort(parsed.begin(), parsed.end(),
                   [](const auto& x, const auto& y) { return x.first.form < y.first.form; });
  const base::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : parsed) {
    if (!ImportOne(key, entry->choice)) refused.push_back(entry->key);
  }
  return refused;
}

bool CudaTuningTable::IsImpossible(const GemmKey& key) const {
  const auto found = choices_.find(key);
  return found != choices_.end() && !found->second.possible;
}

bool CudaTuningTable::ImportOne(const TableKey& key, const std::string& choice) {
  if (!key.form) {
    const std::optional<GemmChoice> parsed = ParseChoice(choice);
    if (!parsed) return false;
    if (parsed->possible && !cublas_.Accepts(key.gemm, parsed->algorithm)) return false;
    choices_[key.gemm] = *parsed;
    return true;
  }
  const std::optional<Form> form = ParseForm(choice);
  if (!form) return false;
  if (*form == Form::kCustom && !forms_.HasCustom(key.gemm)) return false;
  if (*form == Form::kFused && !HasFusedForm(key.gemm.epilogue)) return false;
  if (*form == Form::kSeparate && !HasSeparateForm(key.gemm.epilogue)) return false;
  if (*form == Form::kFused && IsImpossible(key.gemm)) return false;
  if (*form == Form::kSeparate && IsImpossible(SeparateGemmOf(key.gemm))) return false;
  chosen_forms_[key.gemm] = *form;
  return true;
}

StatusOr<std::vector<TuningTime>> CudaTuningTable::Survey(const std::string& text) {
  const std::optional<TableKey> key = ParseTableKey(text);
  if (!key) return base::InvalidArgument("\"{}\" is no product of {}", text, identity_);
  const GemmKey& gemm = key->gemm;
  const base::MutexLock lock(&mutex_);
  std::vector<std::string> choices;
  std::vector<double> us;
  std::string chosen;
  if (key->form) {
    const std::map<Form, GemmRun> forms = FormsOf(gemm);
    if (forms.size() < 2) return std::vector<TuningTime>{};
    for (const auto& [form, run] : forms) choices.emplace_back(Name(form));
    us = RaceForms(gemm, forms);
    const auto entry = chosen_forms_.find(gemm);
    if (entry != chosen_forms_.end()) chosen = Name(entry->second);
  } else {
    TuningRun run(cublas_.limits());
    const Sets sets(gemm, &run);
    const std::vector<GemmAlgorithm> candidates = Runnable(cublas_, gemm, sets, &run);
    for (const GemmAlgorithm& algorithm : candidates) {
      choices.push_back(ToText({.possible = true, .algorithm = algorithm}));
    }
    const std::vector<double> screened =
        RaceAlgorithms(cublas_, gemm, candidates, sets, kScreening, &run);
    const double fastest =
        screened.empty() ? 0 : *std::min_element(screened.begin(), screened.end());
    us = RaceAlgorithms(cublas_, gemm, candidates, sets, fastest < kShortBelowUs ? kShort : kSurvey,
                        &run);
    const auto entry = choices_.find(gemm);
    if (entry != choices_.end()) chosen = ToText(entry->second);
  }
  std::vector<TuningTime> times;
  for (const size_t i : Ranking(us)) {
    times.push_back({.choice = choices[i], .us = us[i], .chosen = choices[i] == chosen});
  }
  return times;
}

}  // namespace mt::kernels::cuda
