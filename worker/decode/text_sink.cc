// One write and one flush a piece, so that what is there is seen.
#include "worker/decode/text_sink.h"

namespace mt::decode {

TextSink ToFile(std::FILE* file) {
  return [file](std::string_view text) -> Status {
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (written && std::fflush(file) == 0) return OkStatus();
    return base::DataLoss("what was written is not whole: the output takes no more");
  };
}

}  // namespace mt::decode
