// Checks of ids and reasons, and the stored form of a request.
#include "daemon/api/request_book.h"

#include <array>
#include <memory>
#include <utility>

#include <absl/strings/escaping.h>
#include <openssl/evp.h>

#include "common/base/check.h"
#include "common/base/plain_text.h"
#include "common/rpc/reason.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxReasonBytes = 1'024;
constexpr size_t kSha256Bytes = 32;

// "sha256:" and 64 hexadecimal digits.
std::string DigestOf(std::string_view content) {
  std::array<unsigned char, kSha256Bytes> hash{};
  unsigned bytes = 0;
  const int done =
      EVP_Digest(content.data(), content.size(), hash.data(), &bytes, EVP_sha256(), nullptr);
  CHECK(done == 1 && bytes == hash.size()) << "SHA-256 is always there";
  const std::string binary(hash.begin(), hash.end());
  return "sha256:" + absl::BytesToHexString(binary);
}

}  // namespace

Status RequestBook::CheckId(const std::string& id) {
  if (!id.empty() && id.size() <= kMaxRequestIdBytes && base::IsPlainText(id)) return OkStatus();
  return rpc::WithReason(
      base::InvalidArgument("request_id must have 1 to {} bytes of readable text (a UUID)",
                            kMaxRequestIdBytes),
      rpc::reason::kInvalidRequest);
}

Status RequestBook::CheckReason(const std::string& text) {
  if (text.size() <= kMaxReasonBytes && base::IsPlainText(text)) return OkStatus();
  return rpc::WithReason(
      base::InvalidArgument("a reason is one line of at most {} bytes without control characters",
                            kMaxReasonBytes),
      rpc::reason::kInvalidRequest);
}

Status RequestBook::CheckRepeated(const v1::StoredRequest& before, std::string_view kind,
                                  std::string_view content) const {
  // Older versions kept the content itself.
  const bool same = before.digest() == DigestOf(content) || before.digest() == content;
  if (before.kind() == kind && same) return OkStatus();
  return rpc::WithReason(
      base::InvalidArgument(
          "request_id '{}' was used for another {}; a new request needs a new one",
          before.request_id(), before.kind()),
      rpc::reason::kRequestIdReused);
}

void RequestBook::Remember(const Entry& entry) {
  auto request = std::make_unique<v1::StoredRequest>();
  request->set_request_id(std::string(entry.id));
  request->set_kind(std::string(entry.kind));
  request->set_target(std::string(entry.target));
  request->set_digest(DigestOf(entry.content));
  ledger_->AddRequest(std::move(request));
}

Order OrderOf(std::string_view actor, const std::string& why, const std::string& request_id) {
  return {.actor = std::string(actor), .reason = why, .request_id = request_id};
}

}  // namespace mt::daemon
