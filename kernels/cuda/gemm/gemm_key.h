// The key by which a GEMM's algorithm is chosen, and its text in tuning tables. Column-major terms,
// as in cuBLAS: D [m, n] = op(A) op(B) + (add ? D : 0), with packed leading dimensions, so that
// shape and transposition determine the layout. Plain values without CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/core/dtype.h"

namespace mt::kernels::cuda {

// The work of the epilogue on the sum before it is stored, or besides. The names are persistent:
// they are part of the texts of tuning tables.
enum class Epilogue : uint8_t {
  kNone,
  kBias,         // adds bias[i] to row i of D
  kGeluAux,      // aux = sum, D = gelu(sum)
  kGeluAuxBias,  // aux = sum + bias, D = gelu(aux)
  kGeluGrad,     // D = sum * gelu'(aux)
  // Custom kernels only, not available in cuBLASLt:
  kGeluGradBias,  // kGeluGrad, and bias[i] = or += the sum of row i of D, in f32
  kSwigluAux,     // aux = sum, D [m / 2, n] = silu(rows [0, m / 2) of aux) * the other rows
  kSwigluGrad,  // aux and D are [2 m, n]: D = gradient of kSwigluAux's D, for which the sum is the
                // incoming gradient
};

// Everything that the choice of an algorithm depends on.
struct GemmKey {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::kBf16, out = DType::kBf16;  // dtype of A and B; dtype of D, bias and aux
  Epilogue epilogue = Epilogue::kNone;
  bool add = false;
  int alignment = 16;  // bytes, at most 16, of which all pointers are multiples
  int sms = 0;         // SMs that the GEMM may use; 0: all
  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

// The way in which a GEMM with an epilogue is computed. These names are persistent, too.
enum class Form : uint8_t {
  kCustom,    // by a custom kernel with its epilogue (custom_gemm.h)
  kFused,     // by cuBLASLt with its epilogue
  kSeparate,  // a simpler GEMM, followed by separate kernels
};
inline constexpr int kForms = 3;
const char* Name(Form form);
std::optional<Form> ParseForm(std::string_view text);

// Key of a table entry. The table has an algorithm of cuBLASLt for each GEMM and, for each GEMM
// that can be computed in several ways, the form to use (`form` is true).
struct TableKey {
  bool form = false;
  GemmKey gemm;
  friend auto operator<=>(const TableKey&, const TableKey&) = default;
};

// "product tn 3072x32768x768 bf16 bf16 gelu_aux_bias write align 16 sms 0"; forms begin with
// "form".
std::string ToText(const TableKey& key);
// Returns nullopt for any text that ToText does not produce for a valid GEMM.
std::optional<TableKey> ParseTableKey(std::string_view text);
// Returns whether it is a key of a table of an earlier version for what this version no longer
// does in a GEMM: a weight gradient's bias gradient ("bias_grad").
bool IsRetiredKey(std::string_view text);

// Returns whether cuBLASLt may have an algorithm with this epilogue.
inline bool HasFusedForm(Epilogue epilogue) { return epilogue < Epilogue::kGeluGradBias; }
// Returns whether it can be computed as a simpler GEMM followed by separate kernels.
inline bool HasSeparateForm(Epilogue epilogue) {
  return epilogue != Epilogue::kNone && epilogue != Epilogue::kBias;
}
// Returns whether some device has a custom kernel for it (custom_gemm.h).
bool MayBeCustom(const GemmKey& key);
// Returns whether the table holds a form for it; otherwise cuBLASLt computes it.
inline bool HasForms(const GemmKey& key) {
  return HasSeparateForm(key.epilogue) || MayBeCustom(key);
}
// Returns the GEMM with which the separate form begins; it may have several forms itself.
GemmKey SeparateGemmOf(const GemmKey& key);

}  // namespace mt::kernels::cuda
