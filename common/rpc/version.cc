#include "common/rpc/version.h"

namespace mt::rpc {

std::string_view Version() { return MT_VERSION; }

}  // namespace mt::rpc
