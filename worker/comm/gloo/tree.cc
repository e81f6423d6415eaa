// A subtree's members behind its root are cut into kTreeArity ranges of equal size, give or take
// one, so its depth is the least that there can be, or one more.
#include "worker/comm/gloo/tree.h"

#include <algorithm>

#include "common/base/check.h"

namespace mt::comm {
namespace {

// The first members of the subtrees below the root of [begin, end).
std::vector<int> ChildrenOf(int begin, int end) {
  const int rest = end - begin - 1;
  const int parts = std::min(rest, kTreeArity);
  std::vector<int> children;
  children.reserve(static_cast<size_t>(parts));
  for (int part = 0; part < parts; ++part) children.push_back(begin + 1 + rest * part / parts);
  return children;
}

}  // namespace

TreePlace PlaceInTree(int member, int num_members) {
  CHECK(member >= 0 && member < num_members) << "member " << member << " of " << num_members;
  int root = 0;
  TreePlace place{.end = num_members, .parent = -1, .children = ChildrenOf(0, num_members)};
  while (root != member) {
    // The last subtree that begins at or before the member.
    const auto next = std::upper_bound(place.children.begin(), place.children.end(), member) - 1;
    const int end = place.EndOf(static_cast<size_t>(next - place.children.begin()));
    place.parent = root;
    root = *next;
    place.end = end;
    place.children = ChildrenOf(root, end);
  }
  return place;
}

std::vector<int> TreePeers(int member, int num_members) {
  const TreePlace place = PlaceInTree(member, num_members);
  std::vector<int> peers;
  peers.reserve(place.children.size() + 1);
  if (place.parent >= 0) peers.push_back(place.parent);
  peers.insert(peers.end(), place.children.begin(), place.children.end());
  return peers;
}

}  // namespace mt::comm
