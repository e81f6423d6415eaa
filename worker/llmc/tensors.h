// The sixteen tensors of a model file of llm.c: their order, and which rows of which parameter each
// is made of. Pure. Legend: worker/llmc/header.h.
#pragma once

#include <string>
#include <vector>

#include "worker/hf/tensors.h"
#include "worker/llmc/header.h"

namespace mt::llmc {

// In the order of the file, one behind the other without gaps; those of the layers, which the file
// stacks as [L, ...], are listed layer by layer: "qkvw[0]", "qkvw[1]". All are stored [outputs,
// inputs], as parameters are. The rows of the vocabulary's padding are zeros, and so are biases
// where the model, completed, has none.
std::vector<hf::HfTensor> TensorsOf(const megatrain::v1::Model& model, const Header& header);

}  // namespace mt::llmc
