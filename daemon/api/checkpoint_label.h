// What a user may call a checkpoint and store with it. Pure.
#pragma once

#include "common/base/status.h"

namespace megatrain::v1 {
class CheckpointLabel;
}

namespace mt::daemon {

namespace v1 = megatrain::v1;

// OK for a label without tag and meta, too: it is none. A tag has 1 to 64 letters, digits, '.', '_'
// and '-', begins with a letter or digit, and is nothing that could be taken for a step, a
// checkpoint's folder or the job file's word for nothing. Meta is at most 32 entries: keys of that
// form, values of at most 1,024 bytes of plain text (common/base/plain_text.h). InvalidArgument
// (INVALID_REQUEST) otherwise.
Status CheckCheckpointLabel(const v1::CheckpointLabel& label);

}  // namespace mt::daemon
