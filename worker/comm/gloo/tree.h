// How the members of a group of words are joined where a connection for each pair would be too
// many: each with a parent and at most kTreeArity children, whatever the group's size. Members are
// numbered so that every subtree is a range, its root first: what its members give, in their order,
// is one piece of what all give.
#pragma once

#include <cstddef>
#include <vector>

namespace mt::comm {

inline constexpr int kTreeArity = 8;

struct TreePlace {
  int end = 0;                // this member's subtree is [member, end)
  int parent = -1;            // -1: the root, member 0
  std::vector<int> children;  // in rising order; the subtree of each ends where the next begins

  // One behind the subtree of children[i].
  int EndOf(size_t i) const { return i + 1 < children.size() ? children[i + 1] : end; }
};

// The place of `member` in a group of `num_members`; 0 <= member < num_members.
TreePlace PlaceInTree(int member, int num_members);

// The parent and the children, in rising order.
std::vector<int> TreePeers(int member, int num_members);

}  // namespace mt::comm
