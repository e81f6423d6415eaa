// The only file that is recompiled when the version changes.
#include "common/rpc/version.h"

namespace mt::rpc {

std::string_view Version() { return MT_VERSION; }

}  // namespace mt::rpc
