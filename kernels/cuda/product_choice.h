// What a table says of a product, and its text: cuBLASLt's algorithm as words in hex, or that there
// is none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/product.h"

namespace mt::kernels::cuda {

// `possible` is false where cuBLASLt has no such product.
struct ProductChoice {
  bool possible = false;
  ProductAlgorithm algorithm;
};

std::string ToText(const ProductChoice& choice);
// nullopt for any other text than ToText's.
std::optional<ProductChoice> ParseChoice(std::string_view text);

}  // namespace mt::kernels::cuda
