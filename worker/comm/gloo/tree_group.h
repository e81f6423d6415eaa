// A process group of words over a tree: what members give rises to the root, which combines it in
// the order of reduce.h, and the result falls to all. Takes the time of twice the tree's depth in
// messages, and nine connections a member. Every member compares its children's calls with its own
// before it takes their data.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/tree.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

class TreeGroup final : public ProcessGroup {
 public:
  // Connects the members of `spec`, whose `words` is set, and blocks until all have come. Errors
  // are the mesh's.
  static StatusOr<std::unique_ptr<ProcessGroup>> Create(
      const std::shared_ptr<gloo::transport::Device>& device, GroupSpec spec, CommConfig config,
      RendezvousStore* store, base::MonotonicTime deadline);

 private:
  TreeGroup(GroupSpec spec, CommConfig config, std::unique_ptr<GlooMesh> mesh);

  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override { mesh_->Break(); }

  Status RiseAndFall(const Call& call, base::MonotonicTime deadline);
  // Bytes that the members [begin, end) give together.
  int64_t GivenBytes(const Call& call, int begin, int end) const;
  // Takes the calls and the data of the children and passes them on with this member's own. At the
  // root `given` is then what all members have given, in their order.
  Status Rise(const Call& call, base::MonotonicTime deadline, std::vector<std::byte>* given);
  Status TakeCallsOfChildren(const Call& call, base::MonotonicTime deadline);
  // At the root: the result.
  void Combine(const Call& call, const std::vector<std::byte>& given) const;
  // Takes the result from the parent and passes it on to the children.
  Status Fall(const Call& call, base::MonotonicTime deadline);

  const std::unique_ptr<GlooMesh> mesh_;
  const TreePlace place_;
  uint64_t num_calls_ = 0;
};

}  // namespace mt::comm
