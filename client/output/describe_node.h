// The description of one node as text for people: its slots, its GPUs, and what is wrong with them.
// Pure.
#pragma once

#include <string>

#include "client/output/tables.h"

namespace mt::client {

// `args.style` decides about colours and times.
std::string DescribeNode(const v1::Node& node, const TableArgs& args);

}  // namespace mt::client
