// Stable error reasons ("UNKNOWN_JOB"): programs branch on them, while messages may change. They
// travel as trailing metadata "mt-reason", and within a process as a payload of the Status. This
// header needs no gRPC. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::rpc {

// Key of the trailing metadata that carries the reason of a failed call.
inline constexpr char kReasonKey[] = "mt-reason";
// Key of request metadata in which a client may name its user. Stored with operations and events.
inline constexpr char kActorKey[] = "mt-actor";

// The reasons are part of the API: none is renamed or reused.
namespace reason {
inline constexpr std::string_view kInvalidSpec = "INVALID_SPEC";
inline constexpr std::string_view kInvalidRequest = "INVALID_REQUEST";
inline constexpr std::string_view kRequestIdReused = "REQUEST_ID_REUSED";
inline constexpr std::string_view kUnknownJob = "UNKNOWN_JOB";
inline constexpr std::string_view kUnknownOperation = "UNKNOWN_OPERATION";
inline constexpr std::string_view kUnknownRank = "UNKNOWN_RANK";
inline constexpr std::string_view kNameInUse = "NAME_IN_USE";
inline constexpr std::string_view kWrongState = "WRONG_STATE";
inline constexpr std::string_view kWrongKind = "WRONG_KIND";
inline constexpr std::string_view kStoreFailed = "STORE_FAILED";
inline constexpr std::string_view kShuttingDown = "SHUTTING_DOWN";
inline constexpr std::string_view kNodeNameInUse = "NODE_NAME_IN_USE";
inline constexpr std::string_view kNotRegistered = "NOT_REGISTERED";
inline constexpr std::string_view kSessionReplaced = "SESSION_REPLACED";
inline constexpr std::string_view kWorkerGone = "WORKER_GONE";
inline constexpr std::string_view kTooSlow = "TOO_SLOW";
inline constexpr std::string_view kEtagMismatch = "ETAG_MISMATCH";
inline constexpr std::string_view kNoCheckpoints = "NO_CHECKPOINTS";
inline constexpr std::string_view kSuperseded = "SUPERSEDED";
inline constexpr std::string_view kJobEnded = "JOB_ENDED";
inline constexpr std::string_view kSaveFailed = "SAVE_FAILED";
inline constexpr std::string_view kEpochClosed = "EPOCH_CLOSED";
inline constexpr std::string_view kExpectedCheckpointMissing = "EXPECTED_CHECKPOINT_MISSING";
inline constexpr std::string_view kDataMissing = "DATA_MISSING";
inline constexpr std::string_view kWordRefused = "WORD_REFUSED";
inline constexpr std::string_view kUnknownNode = "UNKNOWN_NODE";
inline constexpr std::string_view kNodeAlive = "NODE_ALIVE";
inline constexpr std::string_view kNodeInUse = "NODE_IN_USE";
inline constexpr std::string_view kNodeSecretWrong = "NODE_SECRET_WRONG";
inline constexpr std::string_view kNodeHoldsRanks = "NODE_HOLDS_RANKS";
inline constexpr std::string_view kReportOutOfOrder = "REPORT_OUT_OF_ORDER";
inline constexpr std::string_view kHoldTimedOut = "HOLD_TIMED_OUT";
inline constexpr std::string_view kRanksLost = "RANKS_LOST";
inline constexpr std::string_view kCoordinatorSuperseded = "COORDINATOR_SUPERSEDED";
inline constexpr std::string_view kStoreReadOnly = "STORE_READ_ONLY";
inline constexpr std::string_view kWrongCluster = "WRONG_CLUSTER";
inline constexpr std::string_view kTermSuperseded = "TERM_SUPERSEDED";
inline constexpr std::string_view kNoTextMemory = "NO_TEXT_MEMORY";
}  // namespace reason

// The same status with `reason` attached; OK stays OK.
Status WithReason(Status status, std::string_view reason);
// The attached reason, or "".
std::string ReasonOf(const Status& status);

}  // namespace mt::rpc
