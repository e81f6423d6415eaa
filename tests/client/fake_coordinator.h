// A coordinator for tests: the real gRPC services over loopback with answers that the test sets,
// recording the requests; mtctl's environment is emptied. Handlers run on gRPC's threads; a test
// sets its answers before the call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "client/session/exit_code.h"
#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::client {

namespace v1 = megatrain::v1;

// State shared by all handlers; mu guards the members, since several services use them.
struct FakeState {
  base::Mutex mu;
  std::vector<v1::Job> jobs;                        // newest first
  std::map<std::string, v1::Operation> operations;  // by request id: a repeat returns the same one
  std::vector<bool> restarts;                       // SubmitRequest.restart, in order of arrival
  std::vector<std::string> request_ids;             // of verbs, in order of arrival
  std::vector<v1::Event> events;
  v1::SubmitRequest submitted;
  v1::CancelRequest cancelled;
  // Answers of WhoHolds, of which the last one stays; none: every job starts at once.
  std::vector<v1::WhoHoldsResponse> who_holds;
  std::vector<std::string> held;  // uids of HoldOutput, in order of arrival
  v1::ListCheckpointsRequest listed;
  v1::ListCheckpointsResponse checkpoints;
  v1::ListNodesResponse nodes;
  v1::ListOrphansResponse orphans;
  v1::KillOrphanRequest killed;
  v1::AdoptRequest adopted;
  v1::History history;
  v1::QueryHistoryRequest asked;
  // Answers instead of `history`, where it is set.
  std::function<v1::History(const v1::QueryHistoryRequest&)> answer_history;
  v1::PauseRequest paused;
  v1::TriggerCheckpointRequest triggered;
  v1::ProfileRequest profiled;
  v1::DecodeRequest decoded;
  std::vector<v1::LogChunk> trace;  // sent by ReadTrace
  // Sent by ReadOutput, one vector a call, while there are any.
  std::vector<std::vector<v1::LogChunk>> outputs;
  std::vector<v1::ReadOutputRequest> outputs_asked;  // in order of arrival
  std::function<void(FakeState*)> after_output;      // called at each call's end
  v1::ResumeRequest resumed;
  v1::UpdateJobRequest updated;
  v1::ServerInfo info;
  std::vector<std::string> backup;        // pieces that Backup sends before it ends with `refuse`
  std::vector<v1::Job> watch;             // sent by Watch, which then waits for its end
  bool watch_after_metrics = false;       // Watch sends nothing before StreamMetrics was called
  std::vector<v1::MetricsChunk> metrics;  // sent by StreamMetrics
  v1::StreamMetricsRequest streamed;
  int metrics_streams = 0;     // how often StreamMetrics was called
  bool metrics_stall = false;  // the stream then sends nothing more and does not end
  bool operation_done = true;  // verbs return a finished operation
  std::function<void(v1::Operation*)> complete;  // fills in an operation
  int break_next = 0;   // that many verbs do their work and then lose the answer
  bool hang = false;    // verbs do not answer until the client gives up
  grpc::Status refuse;  // verbs are refused
  int job_lists = 0;    // how often the jobs were listed
  int event_streams = 0;
  int break_event_stream_after = 0;  // breaks the first stream after that many events
};

class FakeCoordinator {
 public:
  FakeCoordinator();
  ~FakeCoordinator();
  std::string address() const { return server_->endpoint().ToString(); }
  FakeState& state() { return state_; }

 private:
  FakeState state_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<rpc::Server> server_;
};

// Output and exit code of one command line of mtctl, run in this process against `server` (may be
// null).
struct Ran {
  int code;
  std::string out, err;
};
Ran Mtctl(const FakeCoordinator* server, std::vector<std::string> args);
// Until an mtctl that runs in this process handles Ctrl-C, which takes a while on a loaded machine
// and would end the test before.
void AwaitHandlerOfCtrlC();
// Ctrl-C to such an mtctl, so long after that.
void PressCtrlC(int after_ms);
// The same, so long after this is in what Mtctl takes of its output (fd STDOUT_FILENO) or of its
// errors (STDERR_FILENO); that is waited for for a minute at most.
void PressCtrlCAfter(const std::string& printed, int fd, int after_ms);

// A job of two slots at step 40 of 100, in the given state.
v1::Job MakeJob(const std::string& name, v1::JobState state);

}  // namespace mt::client
