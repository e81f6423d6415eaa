// What is asked of safetensors files that others wrote, beyond what reading them takes. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {

// `text` was parsed as `header`, which has these entries. kDataLoss, without the file's name: a
// name that comes twice, __metadata__ with what is no text, a hole, an overlap, bytes behind the
// last tensor.
Status CheckForeign(const std::string& text, const nlohmann::json& header,
                    const std::map<std::string, SafetensorsReader::Entry>& entries,
                    int64_t data_begin, int64_t file_bytes);

}  // namespace mt::checkpoint
