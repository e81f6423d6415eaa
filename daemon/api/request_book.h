// Requests that change something, by the id that the client chose: asked again, they are answered
// as the first time; the same id for something else is refused (REQUEST_ID_REUSED). Not thread-safe
// (the core's thread).
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class RequestBook {
 public:
  // The ledger outlives it and keeps the requests.
  explicit RequestBook(Ledger* ledger) : ledger_(ledger) {}

  // An id has 1 to 128 bytes of plain text (common/base/plain_text.h). InvalidArgument
  // (INVALID_REQUEST).
  static Status CheckId(const std::string& id);
  // A user's reason has at most 1,024 bytes of plain text. InvalidArgument (INVALID_REQUEST).
  static Status CheckReason(const std::string& text);

  // The request of that id; nullptr: it is new.
  const v1::StoredRequest* Find(std::string_view id) const { return ledger_->FindRequest(id); }
  // Whether `before` asked for the same: its kind ("submit", a verb) and what it asked for, as any
  // text or bytes that are the same for the same request.
  Status CheckRepeated(const v1::StoredRequest& before, std::string_view kind,
                       std::string_view content) const;
  // What is remembered of a new request.
  struct Entry {
    std::string_view id;
    std::string_view kind;
    std::string_view target;   // the job's uid, or the operation's name
    std::string_view content;  // as for CheckRepeated; its digest is kept, of a fixed size
  };
  void Remember(const Entry& entry);

 private:
  Ledger* ledger_;
};

// Who asks for what reason under which id, as the keeper takes it.
Order OrderOf(std::string_view actor, const std::string& why, const std::string& request_id);

}  // namespace mt::daemon
