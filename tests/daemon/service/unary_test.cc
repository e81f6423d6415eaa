// When a client is answered: the services' own handlers, called in gRPC's place and without a
// socket, on the core's loop over a store whose disk is full for a while.
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <grpcpp/server_context.h>
#include <grpcpp/test/default_reactor_test_peer.h>
#include <gtest/gtest.h>

#include "common/control/numbers.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/user_services.h"
#include "megatrain/v1/api.grpc.pb.h"
#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/core/fillable_store.h"

namespace mt::daemon {
namespace {

// A call of a handler: keeps the answer that gRPC would send.
class HandlerCall {
 public:
  // `at_answer` runs on the loop's thread at the moment of the answer.
  explicit HandlerCall(std::function<void()> at_answer = [] {})
      : peer_(&context_, [at_answer = std::move(at_answer)](const grpc::Status&) { at_answer(); }) {
  }
  grpc::CallbackServerContext* context() { return &context_; }
  // Unset while there is none.
  std::optional<grpc::StatusCode> answer() const {
    if (!peer_.test_status_set()) return std::nullopt;
    return peer_.test_status().error_code();
  }

 private:
  grpc::CallbackServerContext context_;
  grpc::testing::DefaultReactorTestPeer peer_;
};

class UnaryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(core_.Recover().ok());
    loop_ = std::make_unique<CoreLoop>(&core_, nullptr);
    services_ = MakeUserServices(loop_.get(), nullptr, nullptr, nullptr);
    for (const auto& service : services_) {
      if (auto* jobs = dynamic_cast<v1::Jobs::CallbackService*>(service.get())) jobs_ = jobs;
    }
    ASSERT_NE(jobs_, nullptr);
    // So that nothing but what is asked for is to be written.
    InATurn([](Core& core) { core.FlushSoon(); });
  }
  // Runs the task after all that was posted, and returns when its turn has tried to write and has
  // answered whom it answers.
  void InATurn(const std::function<void(Core&)>& task = [](Core&) {}) {
    std::promise<void> over;
    loop_->Post([&](Core& core) {
      task(core);
      core.ledger().AfterRound([&over](const Status&) { over.set_value(); });
    });
    over.get_future().wait();
  }
  static v1::SubmitRequest Submission(const std::string& name) {
    v1::SubmitRequest request;
    *request.mutable_spec() = TinyJob(name, 1);
    request.set_request_id(name);
    return request;
  }

  FillableStore disk_;  // of the loop's thread, once that runs
  base::ManualClock clock_;
  Core core_{&disk_, &clock_};
  std::unique_ptr<CoreLoop> loop_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  v1::Jobs::CallbackService* jobs_ = nullptr;
};

TEST_F(UnaryTest, AChangeIsAnsweredWhenItIsOnDiskAndNotBefore) {
  InATurn([this](Core&) { disk_.full = true; });
  const v1::SubmitRequest demo = Submission("demo");
  v1::SubmitResponse submitted;
  bool on_disk = false;
  HandlerCall submit([&] { on_disk = disk_.Has(Table::kJobs, submitted.job().uid()); });
  jobs_->Submit(submit.context(), &demo, &submitted);
  InATurn();
  EXPECT_FALSE(submit.answer().has_value()) << "its commit was refused";
  // What changes nothing is answered meanwhile.
  HandlerCall list, refused;
  const v1::ListJobsRequest all;
  v1::ListJobsResponse listed;
  jobs_->List(list.context(), &all, &listed);
  const v1::SubmitRequest other = Submission("other");
  v1::SubmitResponse nothing;
  jobs_->Submit(refused.context(), &other, &nothing);
  InATurn();
  EXPECT_EQ(list.answer(), grpc::StatusCode::OK);
  EXPECT_EQ(refused.answer(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(submit.answer().has_value()) << "it is not on disk yet";
  InATurn([this](Core&) {
    disk_.full = false;
    clock_.Advance(control::kStoreRetry);
  });
  EXPECT_EQ(submit.answer(), grpc::StatusCode::OK);
  EXPECT_TRUE(on_disk) << "at the moment of the answer";
}

}  // namespace
}  // namespace mt::daemon
