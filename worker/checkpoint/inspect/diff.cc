// A tensor is compared twice where it differs: first for equal bytes, then element by element.
#include "worker/checkpoint/inspect/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/mutex.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/inspect/summary.h"
#include "worker/checkpoint/inspect/tensor_rows.h"

namespace mt::checkpoint {
namespace {

// Of one tensor in memory, for each thread and side.
constexpr int64_t kBlockBytes = int64_t{16} << 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
double ValueAt(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

// An element's value; nullopt for a type that this cannot read (F16).
std::optional<double> ElementValue(std::string_view dtype, const std::byte* at) {
  if (dtype == "F32") return ValueAt<float>(at);
  if (dtype == "F64") return ValueAt<double>(at);
  if (dtype == "I32") return ValueAt<int32_t>(at);
  if (dtype == "I64") return ValueAt<int64_t>(at);
  if (dtype == "U8") return ValueAt<uint8_t>(at);
  if (dtype != "BF16") return std::nullopt;
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// The index of an element by its place, row-major.
std::vector<int64_t> IndexOf(int64_t place, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = place % shape[d];
    place /= shape[d];
  }
  return index;
}

// Compares one tensor that both have in the same shape.
class TensorComparison {
 public:
  TensorComparison(const std::string& key, const TensorEntry& a, const TensorEntry& b)
      : a_(a), b_(b), size_a_(ElementSize(a.dtype)), size_b_(ElementSize(b.dtype)) {
    found_.key = key;
    found_.num_elements = ElementsOf(a);
  }

  // nullopt: equal.
  StatusOr<std::optional<TensorDifference>> Run(const std::string& folder_a,
                                                const std::string& folder_b,
                                                const std::function<void(int64_t)>& done) {
    ASSIGN_OR_RETURN(TensorRows rows_a, TensorRows::Open(folder_a, a_));
    ASSIGN_OR_RETURN(TensorRows rows_b, TensorRows::Open(folder_b, b_));
    const int64_t row = std::max<int64_t>({rows_a.row_bytes(), rows_b.row_bytes(), 1});
    const int64_t step = std::max<int64_t>(1, kBlockBytes / row);
    const auto each = [&](const std::function<bool(int64_t)>& visit) -> Status {
      for (int64_t first = 0; first < rows_a.num_rows(); first += step) {
        const int64_t rows = std::min(step, rows_a.num_rows() - first);
        block_a_.resize(static_cast<size_t>(rows * rows_a.row_bytes()));
        block_b_.resize(static_cast<size_t>(rows * rows_b.row_bytes()));
        RETURN_IF_ERROR(rows_a.Read(first, block_a_));
        RETURN_IF_ERROR(rows_b.Read(first, block_b_));
        if (!visit(first * (rows_a.row_bytes() / size_a_))) break;
      }
      return OkStatus();
    };
    bool equal = a_.dtype == b_.dtype;
    RETURN_IF_ERROR(each([&](int64_t) { return equal = equal && block_a_ == block_b_; }));
    if (!equal) RETURN_IF_ERROR(each([&](int64_t place) { return AddBlock(place), true; }));
    done(found_.num_elements * (size_a_ + size_b_));
    if (equal || (found_.num_different == 0 && a_.dtype == b_.dtype))
      return std::optional<TensorDifference>();
    Finish();
    return std::optional(found_);
  }

 private:
  void AddBlock(int64_t place) {
    const int64_t count = std::ssize(block_a_) / size_a_;
    for (int64_t i = 0; i < count; ++i)
      AddElement(place + i, block_a_.data() + i * size_a_, block_b_.data() + i * size_b_);
  }

  void AddElement(int64_t place, const std::byte* at_a, const std::byte* at_b) {
    const bool one_type = a_.dtype == b_.dtype;
    const bool same_bits = one_type && std::memcmp(at_a, at_b, static_cast<size_t>(size_a_)) == 0;
    const auto a = ElementValue(a_.dtype, at_a);
    const auto b = ElementValue(b_.dtype, at_b);
    if (a && std::isfinite(*a)) norm_a_ += *a * *a;
    if (same_bits || (!one_type && a && b && *a == *b)) return;
    ++found_.num_different;
    if (!a || !b) return;
    double apart = std::abs(*a - *b);
    if (std::isnan(apart)) apart = kInfinity;
    norm_apart_ += apart * apart;
    if (any_ && apart <= found_.largest) return;
    any_ = true;
    found_.largest = apart;
    found_.index = IndexOf(place, a_.shape);
    found_.value_a = *a;
    found_.value_b = *b;
  }

  void Finish() {
    found_.relative_norm = norm_a_ > 0       ? std::sqrt(norm_apart_ / norm_a_)
                           : norm_apart_ > 0 ? kInfinity
                                             : 0;
    if (a_.dtype != b_.dtype) found_.why = fmt::format("stored as {} and {}", a_.dtype, b_.dtype);
  }

  const TensorEntry& a_;
  const TensorEntry& b_;
  const int64_t size_a_, size_b_;  // of an element, in bytes
  std::vector<std::byte> block_a_, block_b_;
  bool any_ = false;
  double norm_a_ = 0, norm_apart_ = 0;  // squares
  TensorDifference found_;
};

using FieldTexts = std::map<std::string, std::string>;

void Flatten(const std::string& path, const nlohmann::json& value, FieldTexts* out) {
  if (!value.is_object()) {
    (*out)[path] = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return;
  }
  for (const auto& [key, child] : value.items())
    Flatten(path.empty() ? key : fmt::format("{}.{}", path, key), child, out);
}

FieldTexts NumbersOf(const Manifest& manifest) {
  FieldTexts texts = {{"step", std::to_string(manifest.step)}};
  for (const auto& [name, value] : manifest.integers) texts[name] = std::to_string(value);
  for (const auto& [name, value] : manifest.reals) texts[name] = fmt::format("{}", value);
  return texts;
}

FieldTexts SpecOf(const Manifest& manifest) {
  FieldTexts texts;
  Flatten("", nlohmann::json::parse(manifest.spec_json, nullptr, false), &texts);
  return texts;
}

FieldTexts SaveOf(const Manifest& manifest) {
  return {{"epoch", std::to_string(manifest.epoch)},
          {"job", fmt::format("{} ({})", manifest.job_name, manifest.job_uid)},
          {"world_size", std::to_string(manifest.world_size)}};
}

void AddFields(FieldDifference::Kind kind, const FieldTexts& a, const FieldTexts& b,
               std::vector<FieldDifference>* out) {
  std::set<std::string> names;
  for (const FieldTexts* side : {&a, &b}) {
    for (const auto& [name, text] : *side) names.insert(name);
  }
  const auto text = [](const FieldTexts& side, const std::string& name) {
    const auto found = side.find(name);
    return found == side.end() ? std::string() : found->second;
  };
  for (const std::string& name : names) {
    FieldDifference field{.kind = kind, .name = name, .a = text(a, name), .b = text(b, name)};
    if (field.a != field.b) out->push_back(std::move(field));
  }
}

class Comparison {
 public:
  Comparison(const DiffArgs& args, const Manifest& a, const Manifest& b)
      : args_(args), a_(a), b_(b) {}

  StatusOr<DiffReport> Run() {
    std::vector<const std::string*> keys;
    keys.reserve(a_.tensors.size() + b_.tensors.size());
    for (const auto& [key, tensor] : a_.tensors) keys.push_back(&key);
    for (const auto& [key, tensor] : b_.tensors) {
      if (!a_.tensors.contains(key)) keys.push_back(&key);
    }
    std::ranges::sort(keys, {}, [](const std::string* key) { return *key; });
    total_bytes_ = Summarize(a_).state_bytes + Summarize(b_).state_bytes;
    std::vector<StatusOr<std::optional<TensorDifference>>> found(keys.size());
    RunTasks(std::ssize(keys), args_.threads, [&](int64_t i) {
      found[static_cast<size_t>(i)] = CompareTensor(*keys[static_cast<size_t>(i)]);
    });
    DiffReport report{.num_tensors = std::ssize(keys)};
    for (auto& one : found) {
      RETURN_IF_ERROR(one.status());
      std::optional<TensorDifference>& different = *one;
      if (different) report.tensors.push_back(*std::move(different));
    }
    for (const auto& [key, tensor] : a_.tensors) report.num_elements += ElementsOf(tensor);
    CompareFields(&report);
    return report;
  }

 private:
  StatusOr<std::optional<TensorDifference>> CompareTensor(const std::string& key) {
    const auto a = a_.tensors.find(key);
    const auto b = b_.tensors.find(key);
    TensorDifference different{.key = key};
    if (a == a_.tensors.end() || b == b_.tensors.end()) {
      different.why = a == a_.tensors.end() ? "only the second has it" : "only the first has it";
    } else if (a->second.shape != b->second.shape) {
      different.why = fmt::format("shapes [{}] and [{}]", fmt::join(a->second.shape, ", "),
                                  fmt::join(b->second.shape, ", "));
    } else {
      return TensorComparison(key, a->second, b->second)
          .Run(args_.a.folder, args_.b.folder, [this](int64_t bytes) { Done(bytes); });
    }
    for (const auto& [manifest, it] : {std::pair(&a_, a), std::pair(&b_, b)}) {
      if (it != manifest->tensors.end()) Done(TensorBytes(it->second.dtype, it->second.shape));
    }
    return std::optional(different);
  }

  void CompareFields(DiffReport* report) const {
    using Kind = FieldDifference::Kind;
    AddFields(Kind::kNumber, NumbersOf(a_), NumbersOf(b_), &report->fields);
    report->same_state = report->tensors.empty() && report->fields.empty();
    AddFields(Kind::kSave, SaveOf(a_), SaveOf(b_), &report->fields);
    AddFields(Kind::kSpec, SpecOf(a_), SpecOf(b_), &report->fields);
    AddFields(Kind::kFact, {a_.facts.begin(), a_.facts.end()}, {b_.facts.begin(), b_.facts.end()},
              &report->fields);
  }

  void Done(int64_t bytes) {
    const base::MutexLock lock(&mu_);
    done_bytes_ += bytes;
    if (args_.progress) args_.progress(done_bytes_, total_bytes_);
  }

  const DiffArgs& args_;
  const Manifest& a_;
  const Manifest& b_;
  int64_t total_bytes_ = 0;
  base::Mutex mu_;  // calls of progress are under it, too
  int64_t done_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace

StatusOr<DiffReport> Diff(const DiffArgs& args) {
  ASSIGN_OR_RETURN(const Manifest a, ReadWholeManifest(args.a.directory, args.a.id, args.threads));
  ASSIGN_OR_RETURN(const Manifest b, ReadWholeManifest(args.b.directory, args.b.id, args.threads));
  return Comparison(args, a, b).Run();
}

}  // namespace mt::checkpoint
