// The past of the store, newest first up to a bound, and the live part behind it.
#include "daemon/feeds/event_feed.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/control/numbers.h"
#include "daemon/store/store.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

constexpr int64_t kNewestByDefault = 100;
// One question may read so many rows, since it is answered on the core's thread.
constexpr int64_t kMaxScanned = 200'000;

}  // namespace

bool EventFeed::Wants(const Query& query, const v1::Event& event) {
  return (query.job_uid.empty() || event.job_uid() == query.job_uid) &&
         (query.types.empty() || query.types.contains(event.type()));
}

StatusOr<std::shared_ptr<EventSubscription>> EventFeed::Watch(const Query& query) {
  ASSIGN_OR_RETURN(const std::string oldest_key, store_->FirstKey(Table::kEvents));
  int64_t oldest = 0;
  std::from_chars(oldest_key.data(), oldest_key.data() + oldest_key.size(), oldest);
  const auto limit = static_cast<size_t>(
      query.since_seq > 0 ? query.limit : std::min(query.limit, kNewestByDefault));
  std::vector<std::shared_ptr<const v1::Event>> past;
  Status damaged;
  int64_t scanned = 0;
  const auto take = [&](std::string_view key, std::string_view value) {
    auto event = std::make_shared<v1::Event>();
    if (!event->ParseFromArray(value.data(), static_cast<int>(value.size()))) {
      damaged = base::DataLoss("event {} of the store is damaged", key);
      return false;
    }
    if (Wants(query, *event)) past.push_back(std::move(event));
    return past.size() < limit && ++scanned < kMaxScanned;
  };
  RETURN_IF_ERROR(store_->ForEachNewest(
      Table::kEvents, fmt::format("{:020}", std::max<int64_t>(0, query.since_seq)), take));
  RETURN_IF_ERROR(damaged);
  // The past comes whole, however slowly it is read; the bound is for what comes live.
  auto subscription = std::make_shared<EventSubscription>(past.size() + 1 + control::kStreamQueue);
  for (auto it = past.rbegin(); it != past.rend(); ++it) subscription->Push({*it, oldest});
  subscription->Push({nullptr, oldest});
  if (query.follow) {
    readers_.push_back({subscription, query});
  } else {
    subscription->Close(OkStatus());
  }
  return subscription;
}

void EventFeed::Unwatch(const EventSubscription* subscription) {
  std::erase_if(readers_, [subscription](const Reader& reader) {
    return reader.subscription.get() == subscription;
  });
}

void EventFeed::Publish(const Ledger::Events& events) {
  for (const Reader& reader : readers_) {
    for (const auto& event : events) {
      if (Wants(reader.query, *event)) reader.subscription->Push({event, 0});
    }
  }
}

void EventFeed::CloseAll(const Status& status) {
  for (const Reader& reader : std::exchange(readers_, {})) reader.subscription->Close(status);
}

}  // namespace mt::daemon
