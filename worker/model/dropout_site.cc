// The names hashed to Philox keys. Changing one changes the masks of resumed runs.
#include "worker/model/dropout_site.h"

#include <string_view>

#include <fmt/format.h>

#include "common/base/ids.h"

namespace mt::model {
namespace {

std::string_view Name(Site site) {
  switch (site) {
    case Site::kEmbedding:
      return "embedding";
    case Site::kProbabilities:
      return "probabilities";
    case Site::kAttention:
      return "attention";
    case Site::kFfn:
      return "ffn";
  }
  return "";
}

}  // namespace

DropoutSite MakeDropoutSite(double p, int64_t layer, Site site, int64_t seed) {
  return {.rate = kernels::MakeDropoutRate(p),
          .key = base::Hash64(fmt::format("dropout/{}/{}", layer, Name(site)),
                              static_cast<uint64_t>(seed))};
}

}  // namespace mt::model
