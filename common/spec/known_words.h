// The words of other programs for what a job file has: Megatron-LM's arguments (from the `flag` of
// each field), nanoGPT's and Hugging Face's. For suggestions only; none of them is accepted. Pure;
// thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace mt::spec {

// The path of the field that another program calls so ("n_layer" and "num-layers":
// "model.layers"), "" where none does. Dashes and capitals do not matter.
std::string FieldCalled(std::string_view word);

// The path of the first field of this name in any section, or of the nearest name; "" where none is
// near.
std::string FieldNamed(std::string_view name);

// The value that another program calls so ("bfloat16": "bf16"), or "". Whether a field has that
// value is for the caller to look.
std::string ValueCalled(std::string_view word);

}  // namespace mt::spec
