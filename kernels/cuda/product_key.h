// What a matrix product is chosen by, and its text in tuning tables. Column-major terms: D [m, n] =
// op(A) op(B) + (add ? D : 0), leading dimensions packed, so that shape and transposition are the
// layout. Plain values without CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/core/dtype.h"

namespace mt::kernels::cuda {

// What the epilogue does with the sum before it is stored, or beside it. Names are persistent: they
// are in the texts of tables.
enum class Epilogue : uint8_t {
  kNone,
  kBias,         // + bias[i] of row i of D
  kGeluAux,      // aux = sum, D = gelu(sum)
  kGeluAuxBias,  // aux = sum + bias, D = gelu(aux)
  kGeluGrad,     // D = sum * gelu'(aux)
  kBiasGrad,     // bias[j] = sum over k of op(B) [k, j]; overwritten
  // Not cuBLASLt's:
  kGeluGradBias,  // kGeluGrad, and bias[i] = or += sum of row i of D, in f32
  kSwigluAux,     // aux = sum, D [m / 2, n] = silu(rows [0, m / 2) of aux) * the other rows
  kSwigluGrad,    // aux and D [2 m, n]: D = gradient of silu(...) * ... as above, sum being D's
};

// Everything an algorithm is chosen by.
struct ProductKey {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::kBf16, out = DType::kBf16;  // of A and B; of D, bias and aux
  Epilogue epilogue = Epilogue::kNone;
  bool add = false;
  int alignment = 16;  // bytes that all pointers are multiples of, at most 16
  int sms = 0;         // multiprocessors to count on; 0: all
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

// How a product is done. Names are persistent, too.
enum class Form : uint8_t {
  kOwn,       // by a kernel of our own, with its epilogue
  kFused,     // by cuBLASLt, with its epilogue
  kSeparate,  // in a plainer way, the rest by kernels of our own behind it
};
inline constexpr int kForms = 3;
const char* Name(Form form);
std::optional<Form> ParseForm(std::string_view text);

// A table has an algorithm of cuBLASLt per product and, per product that could be done in several
// ways, which form to use.
struct TableKey {
  bool form = false;
  ProductKey product;
  friend auto operator<=>(const TableKey&, const TableKey&) = default;
};

// "product tn 3072x32768x768 bf16 bf16 gelu_aux_bias write align 16 sms 0"; forms begin with
// "form".
std::string ToText(const TableKey& key);
// nullopt for any other text than ToText's of a product that can be.
std::optional<TableKey> ParseTableKey(std::string_view text);

// Whether cuBLASLt could have an algorithm for it.
inline bool HasFusedForm(Epilogue epilogue) { return epilogue < Epilogue::kGeluGradBias; }
inline bool HasSeparateForm(Epilogue epilogue) {
  return epilogue != Epilogue::kNone && epilogue != Epilogue::kBias;
}
// Whether some device has a kernel of our own for it (own_product.h).
bool MayBeOwn(const ProductKey& key);
// Whether a form is chosen for it at all; else it is cuBLASLt's.
inline bool HasForms(const ProductKey& key) {
  return HasSeparateForm(key.epilogue) || MayBeOwn(key);
}
// The product that the separate form begins with; it may have forms itself.
ProductKey SeparateProductOf(const ProductKey& key);

}  // namespace mt::kernels::cuda
