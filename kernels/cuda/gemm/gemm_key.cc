// Text form of table keys, and which epilogues have which forms. The parser accepts exactly one
// text per key, so equal keys from different processes are equal strings.
#include "kernels/cuda/gemm/gemm_key.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace mt::kernels::cuda {
namespace {

constexpr std::array<std::pair<Epilogue, std::string_view>, 8> kEpilogues = {{
    {Epilogue::kNone, "none"},
    {Epilogue::kBias, "bias"},
    {Epilogue::kGeluAux, "gelu_aux"},
    {Epilogue::kGeluAuxBias, "gelu_aux_bias"},
    {Epilogue::kGeluGrad, "gelu_grad"},
    {Epilogue::kGeluGradBias, "gelu_grad_bias"},
    {Epilogue::kSwigluAux, "swiglu_aux"},
    {Epilogue::kSwigluGrad, "swiglu_grad"},
}};
constexpr std::string_view kRetiredEpilogue = "bias_grad";
constexpr size_t kEpilogueWord = 5, kWords = 11;  // of a key's text
constexpr std::array<const char*, kForms> kFormNames = {"own", "fused", "separate"};
constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kBf16, DType::kF16};
constexpr int kLargestAlignment = 16;

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t end = text.find(by);
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

template <class Number>
bool Read(std::string_view text, Number* out) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *out);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool Read(std::string_view text, DType* out) {
  for (const DType type : kTypes) {
    if (Name(type) != text) continue;
    *out = type;
    return true;
  }
  return false;
}

bool Read(std::string_view text, Epilogue* out) {
  for (const auto& [epilogue, name] : kEpilogues) {
    if (name != text) continue;
    *out = epilogue;
    return true;
  }
  return false;
}

bool CanBe(const TableKey& key) {
  const GemmKey& p = key.gemm;
  const bool aligned =
      p.alignment > 0 && p.alignment <= kLargestAlignment && (p.alignment & (p.alignment - 1)) == 0;
  return p.m > 0 && p.n > 0 && p.k > 0 && p.sms >= 0 && aligned &&
         (key.form ? HasForms(p) : HasFusedForm(p.epilogue));
}

}  // namespace

std::string ToText(const TableKey& key) {
  const GemmKey& p = key.gemm;
  return fmt::format("{} {}{} {}x{}x{} {} {} {} {} align {} sms {}", key.form ? "form" : "product",
                     p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n', p.m, p.n, p.k,
                     Name(p.in), Name(p.out), kEpilogues[static_cast<size_t>(p.epilogue)].second,
                     p.add ? "add" : "write", p.alignment, p.sms);
}

std::optional<TableKey> ParseTableKey(std::string_view text) {
  const std::vector<std::string_view> words = Split(text, ' ');
  if (words.size() != kWords) return std::nullopt;
  const std::vector<std::string_view> shape = Split(words[2], 'x');
  TableKey key;
  GemmKey& p = key.gemm;
  key.form = words[0] == "form";
  p.transpose_a = words[1].starts_with('t');
  p.transpose_b = words[1].ends_with('t');
  p.add = words[6] == "add";
  const bool read = shape.size() == 3 && Read(shape[0], &p.m) && Read(shape[1], &p.n) &&
                    Read(shape[2], &p.k) && Read(words[3], &p.in) && Read(words[4], &p.out) &&
                    Read(words[kEpilogueWord], &p.epilogue) && Read(words[8], &p.alignment) &&
                    Read(words[10], &p.sms);
  // Exactly one text per key: any other difference from ToText shows here.
  if (!read || !CanBe(key) || ToText(key) != text) return std::nullopt;
  return key;
}

bool IsRetiredKey(std::string_view text) {
  const std::vector<std::string_view> words = Split(text, ' ');
  return words.size() == kWords && words[kEpilogueWord] == kRetiredEpilogue;
}

const char* Name(Form form) { return kFormNames[static_cast<size_t>(form)]; }

std::optional<Form> ParseForm(std::string_view text) {
  const auto found = std::find(kFormNames.begin(), kFormNames.end(), text);
  if (found == kFormNames.end()) return std::nullopt;
  return static_cast<Form>(found - kFormNames.begin());
}

bool MayBeCustom(const GemmKey& key) {
  constexpr int kVector = 8;  // elements of a 16-byte vector, of which rows must consist
  if (SizeOf(key.in) != 2 || key.in != key.out || key.add || key.transpose_b ||
      key.alignment != 16 || key.m % kVector != 0 || key.k % kVector != 0) {
    return false;
  }
  switch (key.epilogue) {
    case Epilogue::kBias:
    case Epilogue::kGeluAux:
    case Epilogue::kGeluAuxBias:
      return key.transpose_a;
    case Epilogue::kSwigluAux:
      return key.transpose_a && key.m % (2 * kVector) == 0;
    case Epilogue::kSwigluGrad:
    case Epilogue::kGeluGradBias:
      return !key.transpose_a;
    default:
      return false;
  }
}

GemmKey SeparateGemmOf(const GemmKey& key) {
  GemmKey plain = key;
  switch (key.epilogue) {
    case Epilogue::kGeluAuxBias:
      plain.epilogue = Epilogue::kBias;
      break;
    case Epilogue::kGeluGradBias:
      plain.epilogue = Epilogue::kGeluGrad;
      break;
    default:
      plain.epilogue = Epilogue::kNone;
  }
  return plain;
}

}  // namespace mt::kernels::cuda
