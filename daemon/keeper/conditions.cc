// A job has few conditions: they are looked for in a list.
#include "daemon/keeper/conditions.h"

#include <algorithm>
#include <string>

#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

void SetCondition(v1::Job* job, std::string_view type, std::string_view message, int64_t now_us) {
  for (v1::Condition& condition : *job->mutable_conditions()) {
    if (condition.type() != type) continue;
    condition.set_message(std::string(message));
    return;
  }
  v1::Condition* condition = job->add_conditions();
  condition->set_type(std::string(type));
  condition->set_message(std::string(message));
  condition->set_since_us(now_us);
}

bool ClearCondition(v1::Job* job, std::string_view type) {
  for (int i = 0; i < job->conditions_size(); ++i) {
    if (job->conditions(i).type() != type) continue;
    job->mutable_conditions()->DeleteSubrange(i, 1);
    return true;
  }
  return false;
}

bool HasCondition(const v1::Job& job, std::string_view type) {
  return std::ranges::any_of(job.conditions(), [type](const v1::Condition& condition) {
    return condition.type() == type;
  });
}

}  // namespace mt::daemon
