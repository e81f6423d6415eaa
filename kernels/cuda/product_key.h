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
  kBias,          // + bias[i] of row i of D
  kGeluAux,       // aux = sum, D = gelu(sum)
  kGeluAuxBias,   // aux = sum + bias, D = gelu(aux)
  kGeluGrad,      // D = sum * gelu'(aux)
  kBiasGrad,      // bias[j] = sum over k of op(B) [k, j]; overwritten
  kGeluGradBias,  // kGeluGrad, and bias[i] = or += sum of row i of D, in f32 (not cuBLASLt's)
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

// A table has an algorithm per product and, per product with an epilogue that could be done in two
// ways, which form to use.
struct TableKey {
  bool form = false;  // fused or separate, of the product with this epilogue
  ProductKey product;
  friend auto operator<=>(const TableKey&, const TableKey&) = default;
};

// "product tn 3072x32768x768 bf16 bf16 gelu_aux_bias write align 16 sms 0"; forms begin with
// "form".
std::string ToText(const TableKey& key);
// nullopt for any other text than ToText's of a product that can be.
std::optional<TableKey> ParseTableKey(std::string_view text);

// Whether there is a separate form: the product without this epilogue, then kernels of our own.
inline bool HasSeparateForm(Epilogue epilogue) {
  return epilogue != Epilogue::kNone && epilogue != Epilogue::kBias;
}
// Whether the fused form is a kernel of our own (gelu_grad_product.h), which has no algorithm.
inline bool IsOwn(Epilogue epilogue) { return epilogue == Epilogue::kGeluGradBias; }
// The product that the separate form begins with; that of an own one has two forms itself.
ProductKey SeparateProductOf(const ProductKey& fused);

}  // namespace mt::kernels::cuda
